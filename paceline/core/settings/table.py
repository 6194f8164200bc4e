"""The settings of a table whose rows become sparse: which columns are hashed."""

from pydantic import Field, model_validator

from paceline.core.extension import Section


class TableConfig(Section):
    """How a CSV or a Parquet file becomes sparse rows for a linear model (docs/choose/tables.md)."""

    label: str | None = Field(None, description="The column to predict.")
    columns: tuple[str, ...] | None = Field(None, description="The columns to learn from; default: all but the label.")
    categories: tuple[str, ...] | None = Field(
        None,
        description="Columns of names, which are hashed, others hold numbers or dates; default: those that hold texts.",
    )
    dates: tuple[str, ...] = Field(
        (), description="Columns of dates, which become month, weekday and hour; those in ISO 8601 are found anyway."
    )
    date_form: str | None = Field(
        None,
        description="How the columns in `dates` are written, in the letters of strptime, like %m/%d/%Y; default: ISO 8601.",
    )
    bits: int = Field(18, ge=1, le=30, description="Names and dates share this power of 2 of features.")

    @model_validator(mode="after")
    def _have_one_use(self) -> "TableConfig":
        named = {"columns": self.columns, "categories": self.categories, "dates": self.dates}
        for key, names in named.items():
            if self.label is not None and self.label in (names or ()):
                raise ValueError(f"{self.label!r} is the label and in {key}, too; leave it out of {key}.")
        if both := set(self.categories or ()) & set(self.dates):
            raise ValueError(f"{min(both)!r} is in categories and in dates; name it in one of them.")
        if self.columns is not None:
            for name in (*(self.categories or ()), *self.dates):
                if name not in self.columns:
                    raise ValueError(
                        f"{name!r} is in categories or dates, but not in columns; add it there, or take it out."
                    )
        if self.date_form is not None and not self.dates:
            raise ValueError(f"date_form is {self.date_form!r}, but dates names no column. Name the columns in it.")
        return self
