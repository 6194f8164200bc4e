"""Reads LIBSVM's text form (svmlight): a line for each example, its label and then 'index:value' of what is not zero."""

import io
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from paceline.core.errors import DataError
from paceline.data import out_of_core
from paceline.data.classes import number_classes
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, opened, parsed, reading
from paceline.data.out_of_core import Growing, csr_rows, ranges
from paceline.data.row_weights import said_of, weights_beside

EXPECTED = "Expected LIBSVM text: lines like '+1 3:0.5 7:1', no index twice."
_UNSORTED = "sorted and unique"
"""What scikit-learn says of a line whose indices don't rise."""
MAX_BYTES = 4 << 30
"""Most that the examples may take as dense rows (bytes): a few wide sparse lines would fill any disk."""
MAX_DENSE_FEATURES = 1 << 22
"""Most features of dense rows: one digit too many in an index would otherwise fill the memory with zeros."""
MAX_INDEX = (1 << 31) - 1
_PARTS = 1024
"""Parts of the range of indices that are looked at, whether any index is in them."""
_NUMBER = rb"[+-]?(?:\d++(?:\.\d*+)?+|\.\d++)(?:[eE][+-]?\d++)?+"
_PLAIN_LINE = re.compile(rb"^" + _NUMBER + rb"(?:[ \t]++\d++:" + _NUMBER + rb")*+[ \t\r]*+(?:\n|\Z)", re.MULTILINE)
"""Lines of numbers alone, no comment, no query, none empty. It takes back nothing (++): of two long numbers in a bad line it
would try each place to cut each."""
_LINE = re.compile(rb"(?m)^(?=[ \t]*[^\s#])")
"""Where a line begins that holds an example."""


def read_svmlight(
    path: str | Path,
    test: str | Path | None = None,
    features: int | None = None,
    classes: bool = True,
    dense: bool = True,
) -> Dataset:
    """float32 features (N, features), a numpy array or, where `dense` is false, a scipy.sparse.csr_array; labels as class
    numbers from 0 in rising order (-1 and +1 become 0 and 1), or float32 as they are where `classes` is false. Indices may
    come in any order; they count from 0 if one is 0 in either file, otherwise from 1; `features` says how many features there
    are, by default as many as occur. A line with a label only is an example of zeros; empty lines and what follows a # are
    passed over. .gz, .bz2 and .xz are unpacked. A file next to each whose name has .weight at its end holds its rows' weights.
    DataError: a bad line, named with its file, more than 4 GiB or 2^22 features as dense rows, or, without `features`, an index
    above 2^22 that is more than twice as large as all but a few."""
    files = [at(file) for file in (path, test) if file is not None]
    names = " and ".join(map(str, files))
    numbering, sets = Numbering(features), [SparseRows() for _ in files]
    for file, rows in zip(files, sets, strict=True):
        numbering = rows.read(file, numbering)
    if not numbering.width:
        raise DataError(f"{names} has no example with a feature. {EXPECTED}")
    every = [rows.array(numbering) for rows in sets]
    if features is None and numbering.width > MAX_DENSE_FEATURES:
        _check_last(every, numbering, files)
    if dense:
        _check_size(sum(map(len, sets)), numbering.width, names)
    found = [rows.labels.array() for rows in sets]
    called: tuple[str, ...] | None = None
    labels: Sequence[Array] = [own.astype(np.float32) for own in found]
    if classes:
        called, labels = number_classes(found, f"The label of {names}")
    weights = [weights_beside(file, len(own)) for file, own in zip(files, labels, strict=True)]
    parts = map(Labelled, map(_dense, every) if dense else every, labels, weights)
    told = (line for file, own in zip(files, weights, strict=True) for line in said_of(file, own))
    return Dataset(*parts, classes=called, as_read=tuple(told))


def read_rows(path: str | Path, features: int) -> tuple[Any, Array | None]:
    """The rows of a file as read_svmlight reads them, a scipy.sparse.csr_array, and the labels as in the file, float32;
    None where its first line has none, only features. DataError as there."""
    file = at(path)
    with reading(file, EXPECTED), opened(file) as stream:
        first = next((line for line in stream if line.partition(b"#")[0].strip()), b"").removeprefix(BOM_UTF8)
    labelled = b":" not in first.split(None, 1)[0] if first.split() else True
    rows = SparseRows(labelled)
    numbering = rows.read(file, Numbering(features))
    return rows.array(numbering), rows.labels.array().astype(np.float32) if labelled else None


class State(Protocol):
    """What is known from the lines that were read, to judge the next ones by."""

    def after(self, labels: Array, indices: Array) -> Self:
        """When rows with these labels and indices have been read, too. ValueError where one can't be."""


AnyState = TypeVar("AnyState", bound=State)


class Numbering(NamedTuple):
    """Which features the indices mean, as far as the lines tell that were read."""

    features: int | None
    """How many there are; None: as many as occur."""
    from_one: bool = False
    """Whether an index 0 is an error; otherwise the indices of files that have one count from 0."""
    first: int = 1
    last: int = 0
    """The largest index."""

    @property
    def width(self) -> int:
        """The number of features."""
        return self.last + 1 - self.first if self.features is None else self.features

    def after(self, labels: Array, indices: Array) -> "Numbering":
        """The numbering when these have been read, too. ValueError where there can be no such index."""
        first, last = int(indices.min(initial=self.first)), int(indices.max(initial=self.last))
        if first == 0 and self.from_one:
            raise ValueError("an index is 0; expected 1 or more")
        if self.features is not None and last + 1 - first > self.features:
            raise ValueError(f"an index is {last:,}, but there are {self.features:,} features, counted from {first}")
        return self._replace(first=first, last=last)


class SparseRows:
    """The rows of one or more files of LIBSVM text, read one after the other. Not thread-safe."""

    def __init__(self, labelled: bool = True) -> None:
        """`labelled` False: lines begin with their first feature."""
        self._before = b"" if labelled else b"0 "
        self.labels = Growing(np.float64)
        self._lengths = Growing(np.int64)
        self._indices = Growing(np.int32)
        self._values = Growing(np.float32)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def read(self, path: Path, state: AnyState, expected: str = EXPECTED) -> AnyState:
        """Appends the file's rows; the state after them. DataError names the first line that is bad, or that the state
        refuses. `expected`: a sentence for people, what a line should be."""

        def parse(block: bytes) -> tuple[Any, Array, AnyState]:
            block = block.removeprefix(BOM_UTF8)
            rows, labels = _rows(_LINE.sub(self._before, block) if self._before else block)
            return rows, labels, state.after(labels, rows.indices)

        before = self._count
        for rows, labels, after in parsed(path, parse, expected):
            self.labels.append(labels)
            self._lengths.append(np.diff(rows.indptr))
            self._indices.append(rows.indices - 1)
            self._values.append(rows.data)
            self._count += len(labels)
            state = after
        if self._count == before:
            raise DataError(f"{path} holds no examples. {expected}")
        return state

    def array(self, numbering: Numbering) -> Any:
        """All rows, a scipy.sparse.csr_array (N, features), float32; call it once, when all files have been read."""
        indices = self._indices.array()
        if numbering.first == 0:
            moved = Growing(np.int32)
            for start, stop in ranges(len(indices), indices.itemsize):
                moved.append(indices[start:stop] + np.int32(1))
            indices = moved.array()
        return csr_rows(self._values.array(), indices, self._lengths.array(), numbering.width)


def _rows(block: bytes) -> tuple[Any, Array]:
    """Sparse rows with the indices as they are written, in rising order, and the labels. ValueError where a line is bad."""
    try:
        rows, labels = _parsed(block)
    except OverflowError as error:
        raise ValueError(f"an index is above {MAX_INDEX:,}") from error
    except ValueError as error:
        if "to unpack" in str(error):
            raise ValueError("a feature is not written as index:value") from error
        if _UNSORTED not in str(error):
            raise
        rows, labels = _parsed(b"\n".join(map(_in_order, block.split(b"\n"))))
    most = np.finfo(np.float32).max
    if not (np.isfinite(rows.data).all() and (np.abs(labels) <= most).all()):
        raise ValueError("a number is NaN, infinite or too large for float32")
    return rows, labels


class _Rows(NamedTuple):
    """As much of a scipy.sparse.csr_array as is needed here."""

    data: Array
    indices: Array
    indptr: Array


def _parsed(block: bytes) -> tuple[Any, Array]:
    """By scikit-learn, which takes longer to load than most files take to read, unless all lines are plain."""
    if (plain := _plain(block)) is not None:
        return plain
    from sklearn.datasets import load_svmlight_files

    found: tuple[Any, Array] = load_svmlight_files([io.BytesIO(block)], dtype=np.float32, zero_based=True)
    return found


def _plain(block: bytes) -> tuple[_Rows, Array] | None:
    """The same bits, of lines of numbers whose indices rise; None for all others."""
    if not block or _PLAIN_LINE.sub(b"", block):
        return None
    lengths = np.array([line.count(b":") for line in block.removesuffix(b"\n").split(b"\n")])
    numbers = np.fromstring(block.replace(b":", b" ").decode(), sep=" ")
    ends = np.cumsum(lengths)
    firsts = 2 * (ends - lengths) + np.arange(len(lengths))
    pairs = np.delete(numbers, firsts).reshape(-1, 2)
    rises = np.diff(pairs[:, 0]) > 0
    starts = ends[:-1]  # of rows: what stands before one in `pairs` is of another row
    rises[starts[(starts > 0) & (starts < len(pairs))] - 1] = True
    if not rises.all() or pairs[:, 0].max(initial=0) > MAX_INDEX:
        return None
    with np.errstate(over="ignore"):  # told as what it becomes
        values = pairs[:, 1].astype(np.float32)
    return _Rows(values, pairs[:, 0].astype(np.int32), np.concatenate([[0], ends])), numbers[firsts]


def _in_order(line: bytes) -> bytes:
    """The line with its features in order of their indices. ValueError where an index comes twice; what is no line of
    features stays as it is."""
    label, *features = line.partition(b"#")[0].split() or [b""]
    try:
        indices = [int(feature.partition(b":")[0]) for feature in features]
    except ValueError:
        return line
    twice = next((index for index, count in Counter(indices).items() if count > 1), None)
    if twice is not None:
        raise ValueError(f"index {twice:,} comes twice")
    places = sorted(range(len(indices)), key=indices.__getitem__)
    return b" ".join([label, *(features[place] for place in places)])


def _check_size(rows: int, columns: int, names: str) -> None:
    if rows * columns * 4 > MAX_BYTES or columns > MAX_DENSE_FEATURES:
        raise DataError(
            f"{names} has {rows:,} examples of {columns:,} features, {rows * columns * 4:,} bytes as dense rows; "
            f"the limit is {MAX_BYTES:,} bytes and {MAX_DENSE_FEATURES:,} features. Keep them sparse with dense=False if the "
            "model can use that, or keep fewer features."
        )


def _check_last(every: Sequence[Any], numbering: Numbering, files: Sequence[Path]) -> None:
    """DataError where no index is in the upper half of their range but a few at its end: one digit too many would make a model
    of that size."""
    used, length = np.zeros(_PARTS, bool), -(-numbering.width // _PARTS)
    for rows in every:
        for start, stop in ranges(len(rows.indices), rows.indices.itemsize):
            used[rows.indices[start:stop] // length] = True
    if used.sum() < 2:
        return
    below, last = np.flatnonzero(used)[-2:].tolist()
    if 2 * below >= last:
        return
    for rows, file in zip(every, files, strict=True):
        strange = np.flatnonzero(rows.indices >= last * length)
        if len(strange):
            row = int(np.searchsorted(rows.indptr, strange[0], "right"))
            index = int(rows.indices[strange[0]]) + numbering.first
            raise DataError(
                f"{file} has the index {index:,} in example {row:,}, and all others are below {(below + 1) * length:,}: "
                f"correct it. If it is meant, call read_svmlight(..., features={numbering.width})."
            )


def _dense(rows: Any) -> Array:
    found = Growing(np.float32, rows.shape[1:], in_memory=out_of_core.PIECE_BYTES)
    for start, stop in ranges(rows.shape[0], 4 * rows.shape[1]):
        found.append(rows[start:stop].toarray())
    return found.array()
