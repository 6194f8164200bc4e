"""What the columns of a table mean, kept with a model so that a new table is read as its training data were."""

from typing import Literal

from pydantic import Field

from paceline.core.settings.config import Section


class Column(Section):
    """A column of features: numbers, categories that each become a feature, texts that are hashed, or dates."""

    name: str = Field(description="What the table calls it.")
    categories: tuple[str, ...] | None = Field(
        None, exclude_if=lambda found: found is None, description="Its texts, sorted; none where it holds numbers."
    )
    fill: float | None = Field(
        None, exclude_if=lambda found: found is None, description="What an empty cell of numbers becomes: their mean."
    )

    hashed: Literal["text", "date"] | None = Field(
        None,
        exclude_if=lambda found: found is None,
        description="What it holds, where its texts have places by their hash.",
    )
    form: str | None = Field(
        None, exclude_if=lambda found: found is None, description="How its dates are written; none: ISO 8601."
    )
    ends: tuple[float, float] | None = Field(
        None, exclude_if=lambda found: found is None, description="Its least and largest number, which become 0 and 1."
    )

    @property
    def kind(self) -> Literal["number", "text", "date"]:
        """What its cells are."""
        return self.hashed or ("number" if self.categories is None else "text")

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are called that it alone has."""
        if self.hashed is not None:
            return ()
        return (self.name,) if self.categories is None else tuple(f"{self.name}={one}" for one in self.categories)


class Columns(Section):
    """The columns of a table that a model learns from."""

    label: str = Field(description="The column to predict.")
    features: tuple[Column, ...] = Field(description="In the order in which they become features.")
    bits: int | None = Field(
        None,
        exclude_if=lambda found: found is None,
        description="Texts and dates have places among this power of 2 of features, which come first.",
    )

    @property
    def names(self) -> tuple[str, ...]:
        """What all features are called that belong to one column, in order."""
        return tuple(name for column in self.features for name in column.names)

    @property
    def width(self) -> int:
        """The number of features."""
        return len(self.names) + (0 if self.bits is None else 1 << self.bits)
