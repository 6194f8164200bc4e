"""Reads tables, CSV or Parquet, in which one column is the label."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import DataError
from paceline.core.large_numbers import some
from paceline.core.settings.table import TableConfig
from paceline.data.as_read import description
from paceline.data.cells import Feature, as_numbers, bad_cell, coded, finite, first_without, plain, rows_of
from paceline.data.classes import number_classes
from paceline.data.columns import Columns
from paceline.data.csv_blocks import EXPECTED, Piece, as_number, csv_pieces
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.files import UNPACK, at, ending, opened, reading
from paceline.data.out_of_core import PIECE_BYTES, Growing

PARQUET = ".parquet"
ENDINGS = (".csv", ".tsv", PARQUET)
_SHOWN = 30
"""Names of columns that an error shows."""
_SETS = {"test", "val", "valid", "validation"}
"""What files are called that are no parts of a train.csv."""
_INDEX = re.compile(r"|__index_level_\d+__|Unnamed: \d+(\.\d+)*")
"""What pandas calls the index that it saves, and reads back."""


def read_table(
    path: str | Path,
    label: str | None = None,
    test: str | Path | None = None,
    columns: Sequence[str] | None = None,
    classes: bool = True,
    categories: Collection[str] = (),
) -> Dataset:
    """float32 features (N, features) of the columns, by default all but the label's and an index of pandas, in the file's
    order: numbers as they are; a column of texts becomes a feature for each of its texts, sorted, 1 where the row has it;
    an empty cell of numbers becomes the mean of its column in `path`, one of texts is of no category. `categories`: columns
    of numbers that are names. Labels, text or whole numbers, become class numbers from 0 in sorted order; where `classes` is
    false they stay numbers, float32. A folder is read as one table, part by part in order of names. DataError: no such
    column, a column of more than 100 texts, of dates, or of numbers and texts, a label that is empty, a damaged file."""
    if label is None:
        raise DataError(f"read_table needs label=..., the column to predict; {path} has {columns_at(at(path))}.")
    file = at(path)

    def pick(names: Sequence[str]) -> list[Feature]:
        chosen = chosen_columns(file, names, label, columns, categories)
        return [Feature(name, is_text=name in categories) for name in chosen]

    return read_sets(file, test, label, pick, classes)


def read_like(path: str | Path, columns: Columns, classes: Sequence[str] | None = None) -> tuple[Array, Array | None]:
    """Features (N, features) of a table as `read_table` gave them for the one that `columns` describe, and its labels: the
    numbers of these classes, int64, or float32 without classes; None where it has no column of labels, or not all of them can
    be read. Categories that the training data lack are none. DataError for the columns of features as for `read_table`, and
    for a class that is none of these."""
    file = at(path)
    part = read_known(file, columns, classes is not None, is_new=True)
    found = rows_of(part.cells, part.features, columns)
    if part.labels is None or classes is None:
        return found, part.labels
    names, (ranks,) = number_classes([part.labels.names], f"Column {columns.label!r} of {file}")
    unknown = next((name for name in names if name not in classes), None)
    if unknown is not None:
        raise DataError(
            f"{file} has the class {unknown!r}, which the model does not know; it knows {', '.join(classes)}."
        )
    places = np.array([classes.index(name) for name in names], np.int64)
    return found, places[ranks][part.labels.numbers]


def columns_at(path: Path) -> str:
    """What the table's columns are called, for people."""
    return some(next((piece.table.column_names for piece in pieces_of(files_of(path))), []), _SHOWN)


def chosen_columns(
    path: Path, names: Sequence[str], label: str, columns: Sequence[str] | None, wanted: Collection[str]
) -> Sequence[str]:
    """The columns to learn from, of a table that has these `names`. DataError: one of `columns` or `wanted` is none of them."""
    for name in (*(columns or ()), *wanted):
        _check_there(path, name, names)
    chosen = [name for name in names if is_feature(name, label)] if columns is None else columns
    if not chosen:
        raise DataError(f"{path} has no feature column, only the label {label!r}.")
    return chosen


def read_sets(
    file: Path,
    test: str | Path | None,
    label: str,
    pick: Callable[[Sequence[str]], list[Feature]],
    classes: bool = True,
    bits: int | None = None,
) -> Dataset:
    """A table to learn from, and one to test on, if there is one. `pick`: as for `_read_part`; `bits`: of hashed texts, which
    make sparse rows."""
    first = _read_part(file, label, classes, pick)
    columns = Columns(label=label, features=tuple(one.column(file) for one in first.features), bits=bits)
    parts = [first, *([read_known(at(test), columns, classes)] if test is not None else [])]
    everything = [rows_of(part.cells, part.features, columns) for part in parts]
    names, labels = None, [part.labels for part in parts]
    if classes:
        names, ranks = number_classes([own.names for own in labels], f"Column {label!r} of {file}")
        labels = [rank[own.numbers] for rank, own in zip(ranks, labels, strict=True)]
    kind = "numbers" if names is None else f"{len(names):,} classes{f': {some(names)}' if bits else ''}"
    said = description(file, first.forms, first.features, columns, kind)
    if test is not None:
        said += description(at(test), parts[1].forms, parts[1].features, columns)
    return Dataset(*map(Labelled, everything, labels), classes=names, columns=columns, as_read=said)


class _Classes(NamedTuple):
    """The labels of a set, each name of a class kept once."""

    names: Array
    numbers: Rows
    """Each example's place in `names`."""


class Part(NamedTuple):
    """A table that was read."""

    features: list[Feature]
    cells: Array
    """(N, columns)"""
    labels: Any
    """float32 (N,), or _Classes; None: there are none, or some that can't be read."""
    forms: tuple[str, ...]
    """How each of its files is written, for people."""
    unscored: str = ""
    """Why labels can't be read, where there are some."""


def read_known(path: Path, columns: Columns, classes: bool, is_new: bool = False, needs_names: bool = True) -> Part:
    """A table with columns like those of the training data. `is_new`: labels may be missing, or of no use."""
    dtype = np.float32 if needs_names else np.float64
    how = None if columns.bits is None else TableConfig(bits=columns.bits)
    features = [Feature(column.name, column, dtype=dtype, how=how) for column in columns.features]
    return _read_part(path, columns.label, classes, lambda names: features, is_new, needs_names)


def _read_part(
    path: Path,
    label: str,
    classes: bool,
    pick: Callable[[Sequence[str]], list[Feature]],
    is_new: bool = False,
    needs_names: bool = True,
) -> Part:
    """`pick` gives the columns to read, from those of the table."""
    features, forms = list[Feature](), dict[Path, str]()
    labels, cells = _Labels(label, classes, is_new), Growing(np.float32)
    for piece in pieces_of(files_of(path), needs_names):
        names = piece.table.column_names
        labels.read(piece)
        if not features:
            features = pick(names)
            cells = Growing(features[0].dtype, (len(features),))
        for feature in features:
            _check_there(piece.file, feature.name, names)
        cells.append(_cells(features, piece))
        forms[piece.file] = piece.form
    if not forms:
        raise DataError(f"{path} has only column names, but no examples.")
    return Part(features, cells.array(), labels.as_read(), tuple(forms.values()), labels.unscored)


class _Labels:
    """The column of labels while its table is read. Not thread-safe."""

    def __init__(self, name: str, are_classes: bool, is_optional: bool) -> None:
        self._name = name
        self._are_classes = are_classes
        self._is_optional = is_optional
        self._is_there = bool(name)
        self._are_texts = False
        """Whether they are texts even where they look like numbers."""
        self._places: dict[str, int] = {}
        self._numbers = Growing(np.int64 if are_classes else np.float32)
        self.unscored = ""
        """Why they can't be read although they may be missing."""

    def read(self, piece: Piece) -> None:
        """DataError where there is no such column, or one that can't be read, but must be."""
        if self._is_optional and self._name not in piece.table.column_names:
            self._is_there = False
        if not self._is_there:
            return
        _check_there(piece.file, self._name, piece.table.column_names)
        try:
            self._numbers.append(self._classes(piece) if self._are_classes else self._amounts(piece))
        except DataError as error:
            if not self._is_optional:
                raise
            self._is_there = False
            self.unscored = str(error).rstrip(".")

    def as_read(self) -> Any:
        """As a `Part` has them."""
        if not self._is_there:
            return None
        if not self._are_classes:
            return self._numbers.array()
        names = list(self._places)
        return _Classes(np.array(names) if self._are_texts else _typed(names), self._numbers.array())

    def _classes(self, piece: Piece) -> Rows:
        """The place of each name among those that occur."""
        import pyarrow as pa

        column = plain(piece, self._name)
        self._are_texts = pa.types.is_string(column.type) and ending(piece.file) == PARQUET
        names, rows = coded(column.cast(pa.string()))
        is_blank = np.array([*(name.isspace() for name in names), True])[rows]  # an empty text in quotes is meant
        if is_blank.any():
            raise self._empty(piece, int(np.argmax(is_blank)))
        places = [self._places.setdefault(name.strip(), len(self._places)) for name in names]
        return np.array(places, np.int64)[rows]

    def _amounts(self, piece: Piece) -> Array:
        """float32 labels; DataError where one is no finite number."""
        import pyarrow as pa

        column = plain(piece, self._name)

        def numbers(cells: Any) -> Any:
            if pa.types.is_string(cells.type):
                return as_numbers(cells, piece.decimal)
            is_time = pa.types.is_temporal(cells.type)
            return None if is_time else cells.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)

        found = numbers(column)
        if found is None:
            row = first_without(numbers, column)
            seen = f"{column[row].as_py()!r:.40}"
            raise bad_cell(piece, self._name, row, seen, "which is not a number; a regression needs numbers")
        if np.isnan(found).any():
            raise self._empty(piece, int(np.argmax(np.isnan(found))))
        return finite(found, np.float32, piece, self._name)

    def _empty(self, piece: Piece, row: int) -> DataError:
        return DataError(
            f"Column {self._name!r} of {piece.file} is empty in {piece.where(row)}; every example needs a label: fill it or "
            'remove the example. NA, null, nan and ? count as empty; write "NA" in quotes where it is the name of a class.'
        )


def _typed(names: list[str]) -> Array:
    """The names as numbers if all of them are numbers."""
    import pyarrow as pa
    from pyarrow import csv

    stream = pa.BufferOutputStream()
    csv.write_csv(pa.table({"name": names}), stream)
    text = stream.getvalue()
    convert = csv.ConvertOptions(quoted_strings_can_be_null=False)
    read = csv.ReadOptions(block_size=text.size + 1)
    found: Array = csv.read_csv(pa.BufferReader(text), read, convert_options=convert)["name"].to_numpy()
    return found


def _cells(features: Sequence[Feature], piece: Piece) -> Array:
    """The cells of these columns (N, columns). DataError for the first that can't be read, with what can be."""
    cells = np.empty((piece.table.num_rows, len(features)), features[0].dtype)
    error, fine = None, []
    for place, feature in enumerate(features):
        try:
            cells[:, place] = feature.read(piece)
            fine.append(feature.name)
        except DataError as bad:
            error = error or bad
    if error is None:
        return cells
    if 0 < len(fine) < len(features) - 1:
        others = [feature.name for feature in features if feature.name not in fine]
        raise DataError(f"{error} In total, {len(others)} columns can't be read: {some(others, _SHOWN)}.") from error
    raise error


def pieces_of(files: Sequence[Path], needs_names: bool = True) -> Iterator[Piece]:
    """The rows of all files, piece by piece. A CSV may lack a line of names unless it `needs_names`."""
    names: list[str] = []
    for file in files:
        for piece in _parquet(file) if ending(file) == PARQUET else csv_pieces(file, needs_names):
            own = piece.table.column_names
            names = names or own
            twice = next((name for name in own if name and own.count(name) > 1), None)
            if twice is not None:
                raise DataError(f"{file} has several columns called {twice!r}; give each its own name.")
            if sorted(own) != sorted(names):
                raise DataError(
                    f"{file} has the columns {some(own, _SHOWN)}, but {files[0]} has {some(names, _SHOWN)}; all "
                    "parts of a table need the same columns."
                )
            if piece.table.num_rows:
                yield piece


def _parquet(file: Path) -> Iterator[Piece]:
    with reading(file, EXPECTED), ExitStack() as stack:
        import pyarrow as pa
        from pyarrow import parquet

        is_plain = type(file) is type(Path()) and file.suffix not in UNPACK
        stream = stack.enter_context(pa.OSFile(str(file)) if is_plain else opened(file))
        table, count = parquet.ParquetFile(stream, page_checksum_verification=True), 0
        rows = max(1, PIECE_BYTES // (8 * max(1, len(table.schema_arrow.names))))
        for group in range(table.num_row_groups):  # a batch of two groups would hold both in memory
            for batch in table.iter_batches(rows, row_groups=[group]):
                yield Piece(file, pa.Table.from_batches([batch]), _example(count))
                count += batch.num_rows


def _example(first: int) -> Callable[[int], str]:
    return lambda row: f"example {first + row:,}"


def files_of(path: Path) -> list[Path]:
    """The file, or all tables in the folder; they have one form."""
    with reading(path, EXPECTED):
        files = [path]
        if path.is_dir():
            files = sorted((file for file in path.iterdir() if ending(file) in ENDINGS), key=str)
            if not files:
                raise DataError(f"{path} holds no file that ends in {', '.join(ENDINGS)}.")
            stems = [re.split(r"[.\-_]", file.name.lower())[0] for file in files]
            if "train" in stems and _SETS.intersection(stems):
                train = str(path / files[stems.index("train")].name)
                todo = f"Read them by their names: read_table({train!r}, ..., test=...), or give --data one of them."
                if len(set(stems)) < len(stems):
                    todo = "Put the parts of each set into its own folder, and read these: read_table(train, ..., test=...)."
                names = some([file.name for file in files], _SHOWN)
                raise DataError(f"{path} holds sets, not the parts of one table ({names}). {todo}")
    if ending(files[0]) not in ENDINGS:
        raise DataError(
            f"{path} ends in none of {', '.join(ENDINGS)} (a CSV may be compressed: .csv.gz); rename the file."
        )
    other = next((file for file in files if ending(file) != ending(files[0])), None)
    if other is not None:
        raise DataError(f"{path} holds tables of two formats, {files[0].name} and {other.name}; keep only one of them.")
    return files


def is_feature(name: str, label: str) -> bool:
    """Whether the column is neither the label nor an index that pandas saved: row numbers tell the label of sorted
    examples."""
    return name != label and not _INDEX.fullmatch(name)


def _check_there(path: Path, name: str, names: Sequence[str]) -> None:
    """DataError where there is no such column, with the one that may be meant."""
    if name in names:
        return
    low = {other.lower(): other for other in reversed(names)}
    near = difflib.get_close_matches(name.lower(), low, 1)
    hint = f" Did you mean {low[near[0]]!r}?" if near else ""
    if all(as_number(cell) is not None for cell in names[: max(1, len(names) // 2)]):
        hint = " Its first line seems to be an example: put a line with names of the columns above it."
    elif len(names) == 1:
        hint = " Its cells seem not to be separated by any of , ; tab |."
    raise DataError(f"{path} has no column {name!r}; it has {some(names, _SHOWN)}.{hint}")
