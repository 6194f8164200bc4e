"""What the columns of a table mean, kept with a model so that a new table is read as its training data were."""

from pydantic import Field

from paceline.core.settings.config import Section


class Column(Section):
    """A column of features: numbers, or categories that each become a feature."""

    name: str = Field(description="What the table calls it.")
    categories: tuple[str, ...] | None = Field(
        None, exclude_if=lambda found: found is None, description="Its texts, sorted; none where it holds numbers."
    )
    fill: float | None = Field(
        None, exclude_if=lambda found: found is None, description="What an empty cell of numbers becomes: their mean."
    )

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are called that it becomes."""
        return (self.name,) if self.categories is None else tuple(f"{self.name}={one}" for one in self.categories)


class Columns(Section):
    """The columns of a table that a model learns from."""

    label: str = Field(description="The column to predict.")
    features: tuple[Column, ...] = Field(description="In the order in which they become features.")

    @property
    def names(self) -> tuple[str, ...]:
        """What all features are called, in order."""
        return tuple(name for column in self.features for name in column.names)
