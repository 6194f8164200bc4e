"""How a table was read, in lines for people: what was guessed of its form, and what became of texts and empty cells."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.core.errors import DataError
from paceline.data.cells import Feature
from paceline.data.columns import Column, Columns
from paceline.data.hashing import MISSING

_NAMED = 20
_SHOWN = 5
"""Columns, or texts, that are named."""


def training_lines(
    file: Path, forms: Iterable[str], features: Sequence[Feature], columns: Columns, label: str
) -> tuple[str, ...]:
    """Of the table that `columns` come from. `forms`: how its files are written; `label`: what the labels are."""
    beside = f"{len(columns.features)} columns besides the label {columns.label!r} ({label})"
    said = [_head(file, forms, f"{beside} make {columns.width:,} features")]
    texts = [(f"{one.name!r} ({len(one.categories)})") for one in columns.features if one.categories is not None]
    parts = [f"a feature for each text of {some(texts)}"] if texts else []
    parts += _of_hashed(columns)
    parts += _of_empty(features, columns.features, "the mean of their column")
    return (*said, f"{file.name}: {'; '.join(parts)}") if parts else tuple(said)


def new_lines(file: Path, forms: Iterable[str], features: Sequence[Feature], columns: Columns) -> tuple[str, ...]:
    """Of another table that is read as that one was."""
    parts = _of_empty(features, columns.features, "the mean of their column in training")
    strange = [(one.name, one.strange) for one in features if one.strange]
    if strange:
        each = [f"{sum(found.values()):,} of {name!r} ({some(list(map(repr, found)))})" for name, found in strange]
        parts.append(f"texts that the training data lack are of no category: {some(each)}")
    said = [_head(file, forms)]
    return (*said, f"{file.name}: {'; '.join(parts)}") if parts else tuple(said)


def _head(file: Path, forms: Iterable[str], *more: str) -> str:
    return f"{file.name}: {'; '.join([*dict.fromkeys(filter(None, forms)), *more])}"


def _of_hashed(columns: Columns) -> list[str]:
    """Which columns were taken for texts, dates and numbers."""
    if columns.bits is None:
        return []
    found = []
    for hashed, what in (
        ("text", f"texts, hashed to {1 << columns.bits:,} places"),
        ("date", "dates, hashed by month, weekday and hour"),
        (None, "numbers, from 0 to 1"),
    ):
        names = [repr(column.name) for column in columns.features if column.hashed == hashed]
        found += [f"{what}: {some(names, _NAMED)}"] if names else []
    return found


def _of_empty(features: Sequence[Feature], columns: Sequence[Column], mean: str) -> list[str]:
    both = [(feature, column) for feature, column in zip(features, columns, strict=True) if feature.empty]
    found = []
    rules = (
        (lambda column: not (column.hashed or column.categories), f"become {mean}"),
        (lambda column: column.categories, "are of no category"),
        (lambda column: column.hashed, f"count as the text {MISSING!r}"),
    )
    for is_one, become in rules:
        cells = [f"{one.empty:,} of {one.name!r}" for one, column in both if is_one(column)]
        if cells:
            found.append(f"empty cells {become}: {some(cells)}")
    return found


def some(parts: Sequence[str], most: int = _SHOWN) -> str:
    """The first ones with commas, and how many more there are."""
    return ", ".join(parts[:most]) + (f" and {len(parts) - most:,} more" if len(parts) > most else "")


def how_read(shards: Path) -> tuple[str, ...]:
    """How the data of these shards was read, in lines for people; none where they can't be opened, which their readers tell."""
    from paceline.data.manifest import read_manifest

    try:
        return read_manifest(shards).as_read
    except DataError:
        return ()
