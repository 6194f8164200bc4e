"""Reads tables, CSV or Parquet, in which one column is the label."""

import difflib
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import DataError
from paceline.data.as_read import new_lines, some, training_lines
from paceline.data.cells import Feature, spread
from paceline.data.classes import number_classes
from paceline.data.columns import Columns
from paceline.data.csv_blocks import EXPECTED, Piece, cells_of, check_utf8, csv_pieces, is_number
from paceline.data.dataset import Array, Dataset, Labelled, Rows
from paceline.data.files import UNPACK, at, ending, opened, reading
from paceline.data.hashed_cells import known_features, spread_hashed
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
        there = some(columns_at(at(path)), _SHOWN)
        raise DataError(f"read_table needs label=..., the column to predict; {path} has {there}.")
    files = [at(file) for file in (path, test) if file is not None]

    def pick(names: Sequence[str]) -> list[Feature]:
        chosen = chosen_columns(files[0], names, label, columns, categories)
        return [Feature(name, is_category=name in categories) for name in chosen]

    return read_parts(files, label, pick, categories, classes)


def columns_at(path: Path) -> list[str]:
    """What the table's columns are called."""
    return next((piece.table.column_names for piece in pieces_of(files_of(path))), [])


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


def read_parts(
    files: Sequence[Path],
    label: str,
    pick: Callable[[Sequence[str]], list[Feature]],
    texts: Collection[str],
    classes: bool = True,
    bits: int | None = None,
) -> Dataset:
    """A table to learn from, and one to test on, if there is one. `pick`, `texts`: as for `read_part`; `bits`: of hashed
    texts, which make sparse rows."""
    parts = [read_part(files[0], label, classes, pick, texts, strict=bits is not None)]
    described = tuple(feature.found(files[0]) for feature in parts[0].features)
    found = Columns(label=label, features=described, bits=bits)
    parts += [read_known(file, found, classes) for file in files[1:]]
    everything = [rows_of(part, found) for part in parts]
    names, labels = None, [part.labels for part in parts]
    if classes:
        names, ranks = number_classes([own.names for own in labels], f"Column {label!r} of {files[0]}")
        labels = [rank[own.numbers] for rank, own in zip(ranks, labels, strict=True)]
    kind = "numbers" if names is None else f"{len(names):,} classes{f': {some(names)}' if bits else ''}"
    said = training_lines(files[0], parts[0].forms, parts[0].features, found, kind)
    for file, part in zip(files[1:], parts[1:], strict=True):
        said += new_lines(file, part.forms, part.features, found)
    return Dataset(*map(Labelled, everything, labels), classes=names, columns=found, as_read=said)


def rows_of(part: "Part", columns: Columns) -> Any:
    """The features of the table (N, columns.width), sparse where texts are hashed."""
    if columns.bits is None:
        return spread(part.cells, part.features, columns.features)
    return spread_hashed(part.cells, columns)


def read_like(path: str | Path, columns: Columns, classes: Sequence[str] | None = None) -> tuple[Array, Array | None]:
    """Features (N, features) of a table as `read_table` gave them for the one that `columns` describe, and its labels: the
    numbers of these classes, int64, or float32 without classes; None where it has no column of labels, or not all of them can
    be read. Categories that the training data lack are none. DataError for the columns of features as for `read_table`, and
    for a class that is none of these."""
    file = at(path)
    part = read_known(file, columns, classes is not None, is_new=True)
    found = rows_of(part, columns)
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
    texts = [column.name for column in columns.features if column.is_text or column.form is not None]
    dtype, is_hashed = np.float32 if needs_names else np.float64, columns.bits is not None

    def known(names: Sequence[str]) -> list[Feature]:
        if is_hashed:
            return known_features(columns)
        return [Feature(column.name, column, dtype=dtype) for column in columns.features]

    return read_part(path, columns.label, classes, known, texts, is_new, needs_names, is_hashed)


def read_part(
    path: Path,
    label: str | None,
    classes: bool,
    pick: Callable[[Sequence[str]], list[Feature]],
    texts: Collection[str],
    is_new: bool = False,
    needs_names: bool = True,
    strict: bool = False,
) -> Part:
    """`pick` gives the columns to read, from those of the table; `texts` are those of them whose cells are names. `strict`:
    a CSV must be UTF-8."""
    for file in files_of(path) if strict else ():
        if ending(file) != PARQUET:
            check_utf8(file)
    files, features, forms = files_of(path), list[Feature](), dict[Path, str]()
    labels, cells = _Labels(label, classes, is_new), Growing(np.float32)
    for piece in pieces_of(files, {*texts, *labels.texts}, needs_names):
        names = piece.table.column_names
        labels.check(piece)
        if not features:
            features = pick(names)
            cells = Growing(features[0].dtype, (len(features),))
        for feature in features:
            _check_there(piece.file, feature.name, names)
        labels.read(piece)
        cells.append(_cells(features, piece))
        forms[piece.file] = piece.form
    if not forms:
        raise DataError(f"{path} has only column names, but no examples.")
    found = labels.found(is_typed=ending(files[0]) == PARQUET)
    return Part(features, cells.array(), found, tuple(forms.values()), labels.unscored)


class _Labels:
    """The column of labels while its table is read. Not thread-safe."""

    def __init__(self, name: str | None, are_classes: bool, is_optional: bool) -> None:
        self._name = name or ""
        self._is_optional = is_optional
        self._places: dict[Any, int] | None = {} if are_classes else None
        self._numbers = Growing(np.int64 if are_classes else np.float32)
        self._is_there = bool(name)
        self.unscored = ""
        """Why they can't be read although they may be missing."""

    @property
    def texts(self) -> list[str]:
        """The column, where its cells are names."""
        return [self._name] if self._is_there and self._places is not None else []

    def check(self, piece: Piece) -> None:
        """DataError where there is no such column but must be."""
        if self._is_optional and self._name not in piece.table.column_names:
            self._is_there = False
        if self._is_there:
            _check_there(piece.file, self._name, piece.table.column_names)

    def read(self, piece: Piece) -> None:
        """DataError where there are some that can't be read but must be."""
        if not self._is_there:
            return
        try:
            self._numbers.append(_labels(piece, self._name, self._places))
        except DataError as error:
            if not self._is_optional:
                raise
            self._is_there = False
            self.unscored = str(error).rstrip(".")

    def found(self, is_typed: bool) -> Any:
        """As a `Part` has them. `is_typed`: names of classes have their types already."""
        if not self._is_there:
            return None
        if self._places is None:
            return self._numbers.array()
        names = list(self._places)
        return _Classes(np.array(names) if is_typed else _typed(names), self._numbers.array())


def _labels(piece: Piece, label: str, places: dict[Any, int] | None) -> Array:
    """The labels of a piece: numbers, or places among the names that occur."""
    column = piece.table.column(label)
    if column.null_count:
        raise _empty(piece, label, int(np.argmax(column.is_null().to_numpy())))
    if places is None:
        return _regression(column, label, piece)
    with reading(f"column {label!r} of {piece.file}", "Classes are whole numbers or text."):
        found, blank = _places(column, places)
    if blank is not None:
        raise _empty(piece, label, blank)
    return found


def _empty(piece: Piece, label: str, row: int) -> DataError:
    return DataError(
        f"Column {label!r} of {piece.file} is empty in {piece.where(row)}; every example needs a label: fill it or remove "
        'the example. NA, null, nan and ? count as empty; write "NA" in quotes where it is the name of a class.'
    )


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


def pieces_of(files: Sequence[Path], text: Collection[str] = (), needs_names: bool = True) -> Iterator[Piece]:
    """The rows of all files, piece by piece. `text`: the columns that are left as they are in a CSV, which may lack a line of
    names unless it `needs_names`."""
    names: list[str] = []
    for file in files:
        for piece in _parquet(file) if ending(file) == PARQUET else csv_pieces(file, text, needs_names):
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
    if all(is_number(cell) for cell in names[: max(1, len(names) // 2)]):
        hint = " Its first line seems to be an example: put a line with names of the columns above it."
    elif len(names) == 1:
        hint = " Its cells seem not to be separated by any of , ; tab |."
    raise DataError(f"{path} has no column {name!r}; it has {some(names, _SHOWN)}.{hint}")


def _typed(names: list[str]) -> Array:
    """The cells of a CSV, as numbers if all of them are numbers."""
    import pyarrow as pa
    from pyarrow import csv

    text = pa.BufferOutputStream()
    csv.write_csv(pa.table({"name": names}), text)
    found: Array = cells_of(text.getvalue().to_pybytes())["name"].to_numpy()
    return found


def _places(column: Any, places: dict[Any, int]) -> tuple[Rows, int | None]:
    """Each cell's place among the names that occur, in order of first occurrence; new ones are added to `places`. And the first
    row that is blank, if one is: only an empty text in quotes is meant."""
    cells = column.combine_chunks()
    cells = cells if hasattr(cells, "dictionary") else cells.dictionary_encode()
    used, rows = np.unique(cells.indices.to_numpy(), return_inverse=True)
    names = cells.dictionary.take(used).to_pylist()
    blank = [place for place, name in enumerate(names) if isinstance(name, str) and name and not name.strip()]
    if blank:
        return rows, int(np.argmax(np.isin(rows, blank)))
    own = [places.setdefault(name, len(places)) for name in _stripped(names)]
    return np.array(own, np.int64)[rows], None


def _stripped(names: list[Any]) -> list[Any]:
    return [name.strip() if isinstance(name, str) else name for name in names]


def _regression(column: Any, label: str, piece: Piece) -> Array:
    """float32 labels; DataError where one is no finite number."""
    import pyarrow as pa

    found = (column.cast(pa.float64()) if pa.types.is_decimal(column.type) else column).to_numpy()
    bad = (
        next((row for row, cell in enumerate(found) if not (isinstance(cell, str) and is_number(cell))), 0)
        if found.dtype.kind not in "biuf"
        else None
    )
    if bad is not None:
        raise DataError(
            f"Column {label!r} of {piece.file} holds {found[bad]!r:.40} in {piece.where(bad)}, which is not a "
            "number; a regression needs numbers."
        )
    with np.errstate(over="ignore"):
        numbers: Array = found.astype(np.float32)
    if not np.isfinite(numbers).all():
        row = int(np.argmin(np.isfinite(numbers)))
        raise DataError(
            f"Column {label!r} of {piece.file} holds {found[row]} in {piece.where(row)}, which is not a finite "
            "float32; correct or remove it."
        )
    return numbers
