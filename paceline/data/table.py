"""Reads tables of numbers, CSV or Parquet, in which one column is the label."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.classes import number_classes
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, ending, opened, reading

ENDINGS = (".csv", ".tsv", ".parquet")
EXPECTED = "Expected a table: a CSV with a line of column names, or Parquet; the file may be damaged."


def read_table(
    path: str | Path,
    label: str,
    test: str | Path | None = None,
    columns: Sequence[str] | None = None,
    classes: bool = True,
) -> Dataset:
    """float32 features (N, columns), by default all but the label's and an index of pandas, in the file's order. Labels,
    text or whole numbers, become class numbers from 0 in sorted order; where `classes` is false they stay numbers, float32.
    A folder is read as one table, part by part in order of names. DataError: no such column, a column of features that is
    no number, an empty or infinite cell, a damaged file."""
    files = [at(file) for file in (path, test) if file is not None]
    tables = [_load(file) for file in files]
    names = columns if columns is not None else [name for name in tables[0].column_names if _is_feature(name, label)]
    if not names:
        raise DataError(f"{files[0]} has no column of features beside the label {label!r}.")
    features = [_features(table, names, file) for table, file in zip(tables, files, strict=True)]
    raw = [_labels(table, label, file, classes) for table, file in zip(tables, files, strict=True)]
    labels: Sequence[Array] = number_classes(raw, f"Column {label!r} of {files[0]}") if classes else raw
    return Dataset(*map(Labelled, features, labels))


def _is_feature(name: str, label: str) -> bool:
    """Whether the column is neither the label nor an index that pandas saved: row numbers tell the label of sorted
    examples."""
    return name != label and name != "" and not name.startswith("__index_level_")


def _load(path: Path) -> Any:
    """A pyarrow.Table of the file, or of all files in the folder."""
    with reading(path, EXPECTED):
        import pyarrow as pa

        files = [path]
        if path.is_dir():
            files = sorted((file for file in path.iterdir() if ending(file) in ENDINGS), key=str)
            if not files:
                raise DataError(f"{path} holds no file that ends in {', '.join(ENDINGS)}.")
        table = pa.concat_tables([_load_file(file) for file in files])
    if not table.num_rows:
        raise DataError(f"{path} has no examples, only names of columns.")
    twice = sorted({name for name in table.column_names if table.column_names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has several columns called {twice[0]!r}; give each its own name.")
    return table


def _load_file(path: Path) -> Any:
    from pyarrow import csv, parquet

    if ending(path) not in ENDINGS:
        raise DataError(f"{path} ends in none of {', '.join(ENDINGS)} (a CSV may be packed: .csv.gz); rename the file.")
    with opened(path) as stream:
        if ending(path) == ".parquet":
            return parquet.read_table(stream, page_checksum_verification=True)
        parse = csv.ParseOptions(delimiter="\t" if ending(path) == ".tsv" else ",")
        convert = csv.ConvertOptions(strings_can_be_null=True, quoted_strings_can_be_null=False)
        return csv.read_csv(stream, parse_options=parse, convert_options=convert)


def _column(table: Any, name: str, path: Path) -> Any:
    """The whole column; DataError where it is not there or where a cell is empty."""
    if name not in table.column_names:
        raise DataError(f"{path} has no column {name!r}; it has {', '.join(table.column_names)}.")
    column = table.column(name)
    if column.null_count:
        row = int(np.argmax(column.is_null().to_numpy()))
        raise DataError(f"Column {name!r} of {path} is empty in example {row:,}; fill it or remove the example.")
    return column


def _numbers(table: Any, name: str, path: Path, remedy: str) -> Array:
    """The column as float32; DataError where it is not all finite numbers."""
    found = _column(table, name, path).to_numpy()
    if found.dtype.kind not in "biuf":
        raise DataError(f"Column {name!r} of {path} holds {found[0]!r:.40}, which is no number; {remedy}.")
    with np.errstate(over="ignore"):
        numbers: Array = found.astype(np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise DataError(
            f"Column {name!r} of {path} holds {found[row]} in example {row:,}, no finite float32; repair or remove it."
        )
    return numbers


def _features(table: Any, names: Sequence[str], path: Path) -> Array:
    features = np.empty((table.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        features[:, place] = _numbers(table, name, path, "encode it, or leave it out with columns=[...]")
    return features


def _labels(table: Any, name: str, path: Path, classes: bool) -> Array:
    if not classes:
        return _numbers(table, name, path, "a regression needs numbers")
    labels: Array = _column(table, name, path).to_numpy()
    return labels
