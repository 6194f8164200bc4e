"""Reads tables, CSV or Parquet, as sparse rows: texts hashed, numbers scaled, one column the label."""

from collections.abc import Sequence
from pathlib import Path

from paceline.core.errors import DataError
from paceline.core.settings.table import TableConfig
from paceline.data.cells import Feature
from paceline.data.dataset import Dataset
from paceline.data.files import at
from paceline.data.linear_labels import MOST
from paceline.data.table import chosen_columns, columns_at, read_sets


def read_hashed(path: str | Path, how: TableConfig, test: str | Path | None = None) -> Dataset:
    """Sparse float32 rows (N, 2**bits + columns of numbers), a scipy.sparse.csr_array. A column is a category where `how`
    names it or, if that names none, where its cells are texts: 1 at the place of its hash. A date is its month, weekday and
    hour, each hashed as a text; a number lies between 0 and 1, from the column's least to its largest in `path`. An empty
    cell is the text '(none)', of numbers the mean of the column. Labels become class numbers from 0 in sorted order. DataError
    names file and line: no such column, a number or date that is none, an empty label; one class only, or more than 1,000."""
    file, label = at(path), how.label
    if label is None:
        there = columns_at(file)
        raise DataError(f"{file} is a table; say which column to predict (data.table.label): it has {there}.")

    def pick(names: Sequence[str]) -> list[Feature]:
        texts = how.categories or ()
        chosen = chosen_columns(file, names, label, how.columns, (*texts, *how.dates))
        return [Feature(name, is_text=name in texts, how=how) for name in chosen]

    found = read_sets(file, test, label, pick, bits=how.bits)
    rows, names = sum(len(part) for _, part in found.sets()), found.classes or ()
    if len(names) == 1:
        raise DataError(
            f"{file}: all {rows:,} examples have {names[0]!r} in column {label!r}; expected two classes, or more."
        )
    if len(names) > MOST:
        raise DataError(
            f"{file}: column {label!r} has {len(names):,} different labels; expected up to {MOST:,} classes, not "
            "amounts. Name another column."
        )
    return found
