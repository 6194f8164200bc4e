"""How a table was read, in lines for people: what was guessed of its form, and what became of texts and empty cells."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from paceline.core.errors import DataError
from paceline.core.large_numbers import large_numbers, some
from paceline.data.cells import EXACT, Feature
from paceline.data.columns import Column, Columns
from paceline.data.hashing import MISSING

_NAMED = 20
"""Most columns that are named of one kind."""


def description(
    file: Path, forms: Iterable[str], features: Sequence[Feature], columns: Columns, labels: str = ""
) -> tuple[str, ...]:
    """Returns the lines about a table. `forms`: how its files are written; `labels`: what those of the table are that
    `columns` come from, '' for another table that is read as that one was."""
    head, parts = list(dict.fromkeys(filter(None, forms))), []

    if labels:
        beside = f"{len(columns.features)} columns besides the label {columns.label!r} ({labels})"
        head.append(f"{beside} make {columns.width:,} features")
        texts = [f"{one.name!r} ({len(one.categories)})" for one in columns.features if one.categories is not None]
        parts = [f"a feature for each text of {some(texts)}"] if texts else []
        parts += _of_hashed(columns)

    becomes = {
        "number": f"become the mean of their column{'' if labels else ' in training'}",
        "text": "are of no category",
        "hashed": f"count as the text {MISSING!r}",
    }
    for kind, become in becomes.items():
        both = zip(features, columns.features, strict=True)
        empty = [f"{one.empty:,} of {one.name!r}" for one, column in both if one.empty and kind == _sort(column)]
        parts += [f"empty cells {become}: {some(empty)}"] if empty else []

    merged = [f"{one.merged:,} of {one.name!r}" for one in features if one.merged]
    if merged:
        advice = "subtract what they have in common, or leave the column out if it only numbers the rows"
        parts.append(f"numbers above {EXACT:,} are rounded, and become the same as another: {some(merged)}; {advice}")
    large = [f"{one.name!r} ({one.large})" for one in features if one.large] if labels else []
    if large:
        parts.append(large_numbers(large, "prepare() can scale them, and columns=[...] leaves columns out"))
    strange = [(one.name, one.strange) for one in features if one.strange]
    if strange:
        each = [f"{sum(found.values()):,} of {name!r} ({some(list(map(repr, found)))})" for name, found in strange]
        parts.append(f"texts that the training data lack are of no category: {some(each)}")
    return tuple(f"{file.name}: {'; '.join(one)}" for one in (head, parts) if one)


def _sort(column: Column) -> str:
    return "hashed" if column.hashed else column.kind


def _of_hashed(columns: Columns) -> list[str]:
    """Which columns were taken for texts, dates and numbers."""
    if columns.bits is None:
        return []
    of = {
        "text": f"texts, hashed to {1 << columns.bits:,} places",
        "date": "dates, hashed by month, weekday and hour",
        "number": "numbers, from 0 to 1",
    }
    named = {kind: [repr(one.name) for one in columns.features if one.kind == kind] for kind in of}
    return [f"{of[kind]}: {some(names, _NAMED)}" for kind, names in named.items() if names]


def how_read(shards: Path) -> tuple[str, ...]:
    """How the data of these shards was read, in lines for people; none where they can't be opened, which their readers tell."""
    from paceline.data.manifest import read_manifest

    try:
        return read_manifest(shards).as_read
    except DataError:
        return ()
