"""Reads tables of numbers, CSV or Parquet, in which one column is the label."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import DataError
from paceline.data.classes import number_classes
from paceline.data.columns import Column, Columns
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.files import at, ending, opened, parsed, reading
from paceline.data.out_of_core import PIECE_BYTES, Growing

PARQUET = ".parquet"
ENDINGS = (".csv", ".tsv", PARQUET)
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
    features: list[Array] = []
    labels: list[Any] = []
    for file in files:
        columns, own_features, own_labels = _read(file, label, columns, classes)
        features.append(own_features)
        labels.append(own_labels)
    names = None
    if classes:
        names, ranks = number_classes([found.names for found in labels], f"Column {label!r} of {files[0]}")
        labels = [rank[found.numbers] for rank, found in zip(ranks, labels, strict=True)]
    described = Columns(label=label, features=tuple(Column(name=name) for name in columns or ()))
    return Dataset(*map(Labelled, features, labels), classes=names, columns=described)


class _Classes(NamedTuple):
    """The labels of a set, each name of a class kept once."""

    names: Array
    numbers: Rows
    """Each example's place in `names`."""


def _read(
    path: Path, label: str, columns: Sequence[str] | None, classes: bool
) -> tuple[Sequence[str] | None, Array, Any]:
    """The names of the columns of features, chosen from those of the table where none are given, the features, and the
    labels: float32, or _Classes."""
    files = _files(path)
    count, features, labels = 0, Growing(np.float32), Growing(np.int64 if classes else np.float32)
    places: dict[Any, int] = {}
    for table in _tables(files, label if classes else None):
        if columns is None:
            columns = [name for name in table.column_names if _is_feature(name, label)]
        if not columns:
            raise DataError(f"{path} has no column of features beside the label {label!r}.")
        if not count:
            features = Growing(np.float32, (len(columns),))
        features.append(_features(table, columns, path, count))
        if classes:
            column = _column(table, label, path, count)
            with reading(f"column {label!r} of {path}", "Classes are whole numbers or text."):
                labels.append(_places(column, places))
        else:
            labels.append(_numbers(table, label, path, count, "a regression needs numbers"))
        count += table.num_rows
    if not count:
        raise DataError(f"{path} has no examples, only names of columns.")
    if not classes:
        return columns, features.array(), labels.array()
    names = np.array(list(places)) if ending(files[0]) == PARQUET else _typed(list(places))
    return columns, features.array(), _Classes(names, labels.array())


def _is_feature(name: str, label: str) -> bool:
    """Whether the column is neither the label nor an index that pandas saved: row numbers tell the label of sorted
    examples."""
    return name != label and name != "" and not name.startswith("__index_level_")


def _files(path: Path) -> list[Path]:
    """The file, or all tables in the folder; they have one form."""
    with reading(path, EXPECTED):
        files = [path]
        if path.is_dir():
            files = sorted((file for file in path.iterdir() if ending(file) in ENDINGS), key=str)
            if not files:
                raise DataError(f"{path} holds no file that ends in {', '.join(ENDINGS)}.")
    if ending(files[0]) not in ENDINGS:
        raise DataError(f"{path} ends in none of {', '.join(ENDINGS)} (a CSV may be packed: .csv.gz); rename the file.")
    other = next((file for file in files if ending(file) != ending(files[0])), None)
    if other is not None:
        raise DataError(f"{path} holds tables of two forms, {files[0].name} and {other.name}; keep those of one.")
    return files


def _tables(files: Sequence[Path], text: str | None) -> Iterator[Any]:
    """The tables, piece by piece, each a pyarrow.Table. `text`: the column that is left as it is in a CSV."""
    names: list[str] = []
    for file in files:
        for table in _parquet(file) if ending(file) == PARQUET else _csv(file, text):
            names = names or table.column_names
            twice = next((name for name in names if names.count(name) > 1), None)
            if twice is not None:
                raise DataError(f"{file} has several columns called {twice!r}; give each its own name.")
            if sorted(table.column_names) != sorted(names):
                raise DataError(
                    f"{file} has the columns {', '.join(table.column_names)}, {files[0]} has {', '.join(names)}; all "
                    "parts of a table need the same."
                )
            if table.num_rows:
                yield table


def _parquet(file: Path) -> Iterator[Any]:
    with reading(file, EXPECTED), opened(file) as stream:
        import pyarrow as pa
        from pyarrow import parquet

        table = parquet.ParquetFile(stream, page_checksum_verification=True)
        rows = max(1, PIECE_BYTES // (8 * max(1, len(table.schema_arrow.names))))
        for group in range(table.num_row_groups):  # a batch of two groups would hold both in memory
            for batch in table.iter_batches(rows, row_groups=[group]):
                yield pa.Table.from_batches([batch])


def _csv(file: Path, text: str | None) -> Iterator[Any]:
    """Each block of lines with types of its own: a column may hold whole numbers first and others later."""
    names: list[str] = []
    delimiter = "\t" if ending(file) == ".tsv" else ","

    def parse(block: bytes) -> Any:
        return _cells(block, names, delimiter, text)

    for table in parsed(file, parse, EXPECTED):
        names = table.column_names
        yield table
    if not names:
        raise DataError(f"{file} is empty. {EXPECTED}")


def _cells(content: bytes, names: Sequence[str], delimiter: str = ",", text: str | None = None) -> Any:
    """Lines of a CSV as a pyarrow.Table with these columns, or those that its first line names. `text`: the column that
    is left as it is."""
    import pyarrow as pa
    from pyarrow import csv

    convert = csv.ConvertOptions(
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
        column_types={} if text is None else {text: pa.string()},
    )
    read = csv.ReadOptions(column_names=names, block_size=len(content) + 1)
    return csv.read_csv(io.BytesIO(content), read, csv.ParseOptions(delimiter=delimiter), convert)


def _typed(names: list[str]) -> Array:
    """What stands in a CSV, as numbers where all of it is numbers."""
    import pyarrow as pa
    from pyarrow import csv

    text = pa.BufferOutputStream()
    csv.write_csv(pa.table({"name": names}), text)
    found: Array = _cells(text.getvalue().to_pybytes(), [])["name"].to_numpy()
    return found


def _column(table: Any, name: str, path: Path, first: int) -> Any:
    """The column of a piece whose first row is example `first`; DataError where it is not there or a cell is empty."""
    if name not in table.column_names:
        raise DataError(f"{path} has no column {name!r}; it has {', '.join(table.column_names)}.")
    column = table.column(name)
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy()))
        raise DataError(f"Column {name!r} of {path} is empty in example {row:,}; fill it or remove the example.")
    return column


def _places(column: Any, places: dict[Any, int]) -> Rows:
    """Each cell's place among the names that occur, in order of first occurrence; new ones are added to `places`."""
    cells = column.combine_chunks()
    cells = cells if hasattr(cells, "dictionary") else cells.dictionary_encode()
    used, rows = np.unique(cells.indices.to_numpy(), return_inverse=True)
    own = [places.setdefault(name, len(places)) for name in cells.dictionary.take(used).to_pylist()]
    found: Rows = np.array(own, np.int64)[rows]
    return found


def _numbers(table: Any, name: str, path: Path, first: int, remedy: str) -> Array:
    """The column as float32; DataError where it is not all finite numbers."""
    found = _column(table, name, path, first).to_numpy()
    if found.dtype.kind not in "biuf":
        row = next((row for row, cell in enumerate(found) if not _is_number(cell)), 0)
        raise DataError(
            f"Column {name!r} of {path} holds {found[row]!r:.40} in example {first + row:,}, which is no number; {remedy}."
        )
    with np.errstate(over="ignore"):
        numbers: Array = found.astype(np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise DataError(
            f"Column {name!r} of {path} holds {found[row]} in example {first + row:,}, no finite float32; repair or "
            "remove it."
        )
    return numbers


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    return True


def _features(table: Any, names: Sequence[str], path: Path, first: int) -> Array:
    features = np.empty((table.num_rows, len(names)), np.float32)
    for place, name in enumerate(names):
        features[:, place] = _numbers(table, name, path, first, "encode it, or leave it out with columns=[...]")
    return features
