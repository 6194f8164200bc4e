"""Reads the examples that a trained model is applied to: in the form of those that it learned from, with labels or without."""

import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from paceline.core.errors import DataError
from paceline.data import images, table
from paceline.data.as_read import description
from paceline.data.cells import rows_of
from paceline.data.classes import NOT, name_of, number_classes
from paceline.data.columns import Column, Columns
from paceline.data.dataset import Array, Dataset, Labelled, is_sparse
from paceline.data.files import at, ending, reading
from paceline.data.inputs import Inputs
from paceline.data.npz import EXPECTED as ARRAYS
from paceline.data.npz import array_in, loaded
from paceline.data.rcv1 import read_documents
from paceline.data.svmlight import read_rows

_TEXT = ("", ".txt", ".libsvm", ".svm", ".svmlight", ".t", ".scale", ".tr", ".te", ".val", ".dat")
"""What the names of LIBSVM text end in."""
_DOCUMENTS = re.compile(r"lyrl2004_vectors_\w+\.dat")
_MAGIC = ((b"PAR1", ".parquet"), (b"\x93NUMPY", ".npy"), (b"PK\x03\x04", ".npz"))
_SHOWN = 5
LABELS = ("label", "labels", "target", "class", "y")
"""Columns that hold the label of a table whose columns the model does not know by name, and arrays of an .npz."""


class _Read(NamedTuple):
    """The content of a file."""

    features: Any
    labels: Any
    """As in the file; None where there are none."""
    unscored: str = ""
    as_read: tuple[str, ...] = ()


class NewExamples(NamedTuple):
    """What a model is applied to."""

    features: Any
    """(N, ...) of the shape and type that the model was trained on; sparse rows where it was on these."""
    labels: Array | None
    """Class numbers as the model has them, or numbers; None where there are none, or none of the model's."""
    unscored: str = ""
    """Why they can't be scored, where the file has some."""
    as_read: tuple[str, ...] = ()
    """How a table was read, in lines for people."""
    weights: Array | None = None
    """How much each of a linear model's counts in the score; None: all alike."""

    def __len__(self) -> int:
        return int(self.features.shape[0])


def read_new(path: str, inputs: Inputs, own: Callable[[str], Dataset] | None = None) -> NewExamples:
    """The examples of a file, told by its ending: a table (.csv, .tsv, .parquet) whose columns are found by name, or taken in
    order where the training data were no table; .npy or .npz; images, or a folder of them; LIBSVM text; RCV1's
    lyrl2004_vectors_*.dat. What ends otherwise goes to `own`, the task's data(): its test set if it has one, otherwise
    all. '-' is stdin, known by its first bytes. DataError: a file that is none of these, or does not fit what the model
    was trained on."""
    with local(path, inputs) as file:
        read = _read(file, inputs, own)
    found, labels, unscored = fitted(read.features, inputs, file), None, read.unscored
    if read.labels is not None:
        try:
            labels = _numbered(np.asarray(read.labels), inputs)
        except ValueError as error:
            unscored = str(error)
    return NewExamples(found, labels, unscored, read.as_read)


def is_rcv1(file: Path) -> bool:
    """Whether the file is one of RCV1-v2's as published, whose lines begin with a document's number and no label."""
    return _DOCUMENTS.match(file.name) is not None


def _read(file: Path, inputs: Inputs, own: Callable[[str], Dataset] | None) -> _Read:
    kind = ending(file)
    if is_rcv1(file):
        return _Read(*read_documents(file, (inputs.classes or ("CCAT",))[-1], inputs.size))
    if kind in table.ENDINGS or _holds(file, table.ENDINGS):
        return _table(file, inputs)
    if kind in (".npy", ".npz"):
        return _arrays(file, inputs)
    if len(inputs.shape) in (2, 3) and (kind in images.FORMATS or (own is None and file.is_dir()) or _has_images(file)):
        return _Read(*images.read_some(file, inputs.shape))
    if len(inputs.shape) == 1 and kind in _TEXT and not file.is_dir():
        return _Read(*read_rows(file, inputs.size))
    if own is None:
        raise DataError(f"{file} can't be read as examples of {inputs.size:,} features; expected {_expected(inputs)}.")
    data = own(str(file))
    part = data.test or data.train
    names = None if data.classes is None else np.array(data.classes, object)[part.labels]
    return _Read(part.features, part.labels if names is None else names, as_read=data.as_read)


def _table(file: Path, inputs: Inputs) -> _Read:
    """Columns are found by their names, or taken in order where the model knows none. A category that is not in the training
    data is none. DataError: a missing column, one that holds another kind of values than in training; a damaged file."""
    columns = inputs.columns or _in_order(file, inputs.size)
    part = table.read_known(file, columns, inputs.has_classes, is_new=True, needs_names=inputs.columns is not None)
    labels, unscored = part.labels, part.unscored
    if labels is not None and inputs.has_classes:
        try:
            names, (ranks,) = number_classes([labels.names], f"column {columns.label!r} of {file}")
            labels = np.array(names, object)[ranks][labels.numbers]
        except DataError as error:
            labels, unscored = None, str(error).rstrip(".")
    said = description(file, part.forms, part.features, columns)
    return _Read(rows_of(part.cells, part.features, columns), labels, unscored, said)


def _in_order(path: Path, size: int) -> Columns:
    """All columns but one that is called like a label; the names of the first line may be missing. DataError: not `size` of
    them."""
    names = next((piece.table.column_names for piece in table.pieces_of(table.files_of(path), needs_names=False)), None)
    if names is None:
        raise DataError(f"{path} has only column names, but no examples.")
    every = [name for name in names if table.is_feature(name, "")]
    label = min((name for name in names if name.lower() in LABELS), key=lambda name: name.lower() == "y", default="")
    if label.lower() == "y" and len(every) == size:  # a coordinate, like x
        label = ""
    chosen = [name for name in names if table.is_feature(name, label)]
    if len(chosen) != size:
        beside = f" besides the label {label!r}" if label else f", none of them called {', '.join(LABELS)}"
        raise DataError(
            f"{path} has {len(chosen):,} columns{beside}; the model was trained on {size:,} features without "
            "names, so it needs exactly these, in their order. Leave out the other columns."
        )
    return Columns(label=label, features=tuple(Column(name=name) for name in chosen))


def _expected(inputs: Inputs) -> str:
    plain = "a table (.csv, .tsv, .parquet), .npy, .npz"
    return f"{plain} or LIBSVM text" if len(inputs.shape) == 1 else f"{plain} or images"


@contextmanager
def local(path: str, inputs: Inputs | None = None) -> Iterator[Path]:
    """The file; stdin as a file that is gone afterwards."""
    if path != "-":
        yield at(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stdin"
        with file.open("wb") as stream:
            shutil.copyfileobj(sys.stdin.buffer, stream)
        with file.open("rb") as stream:
            named = file.with_name(f"stdin{_kind(stream, inputs)}")
        yield file.rename(named)


def _kind(stream: BinaryIO, inputs: Inputs | None) -> str:
    """The ending that fits what the stream begins with."""
    first = stream.read(1 << 16)
    for magic, found in _MAGIC:
        if first.startswith(magic):
            return found
    lines = [line for line in first.splitlines() if line.partition(b"#")[0].strip()]
    words = lines[0].split() if lines else []
    if (
        inputs is None
        or (inputs.sparse and inputs.columns is None)
        or (words and all(b":" in word for word in words[1:] or words))
    ):
        return ""
    return ".csv"


def _holds(file: Path, endings: tuple[str, ...]) -> bool:
    return file.is_dir() and any(ending(found) in endings for found in file.iterdir())


def _has_images(file: Path) -> bool:
    return file.is_dir() and any(found.suffix.lower() in images.FORMATS for found in file.rglob("*"))


def _arrays(file: Path, inputs: Inputs) -> _Read:
    """The one array of an .npy; of an .npz the one that has the model's shape, and the one that has a label for each of its
    rows, by names where there are several."""
    with reading(file, ARRAYS.format(kind="numpy")), file.open("rb") as stream:
        found = loaded(stream)
        every = {name: array_in(found, name) for name in found} if hasattr(found, "files") else {"features": found}
    fitting = [name for name, rows in every.items() if rows.ndim > 1 and _fits(rows.shape[1:], inputs)]
    chosen = ["features"] if "features" in fitting else fitting or list(every)
    name = chosen[0] if len(chosen) == 1 else None
    if name is None:
        seen = ", ".join(f"{name} {rows.shape}" for name, rows in every.items())
        raise DataError(
            f"{file} holds {seen}; expected one array of examples of the shape {inputs.shape} (or one called 'features')."
        )
    own = [
        label
        for label, rows in every.items()
        if label != name and rows.shape == (len(every[name]), *inputs.label_shape)
    ]
    named = [label for label in own if label in LABELS]
    label = named[0] if len(named) == 1 else own[0] if len(own) == 1 else None
    return _Read(every[name], None if label is None else every[label])


def _fits(shape: tuple[int, ...], inputs: Inputs) -> bool:
    return shape in (inputs.shape, (inputs.size,))


def fitted(features: Any, inputs: Inputs, file: Path | str) -> Any:
    """The features in the model's shape and type. `file`: what holds them, for people. DataError where they are others."""
    if is_sparse(features) or not isinstance(features, np.ndarray):
        found = features if inputs.sparse else features.toarray()
    else:
        found = features
    if features.shape[0] == 0:
        raise DataError(f"{file} holds no examples.")
    if not _fits(found.shape[1:], inputs):
        raise DataError(
            f"An example of {file} has the shape {found.shape[1:]}, but the model was trained on {inputs.shape}. "
            "Give examples of that shape."
        )
    if inputs.sparse:
        from scipy.sparse import csr_array

        with np.errstate(all="ignore"):
            rows = csr_array(found).astype(np.float32)
        Labelled(rows, np.zeros(rows.shape[0], np.int64))  # refuses NaN and infinity
        return rows
    found, kind = found.reshape(len(found), *inputs.shape), np.dtype(inputs.dtype)
    Labelled(found, np.zeros(len(found), np.int64))  # refuses what is no number, NaN and infinity
    with np.errstate(all="ignore"):
        cast: Array = found.astype(kind)
    if kind.kind == "f" and (wrong := np.isinf(cast)).any():
        row = int(np.argmax(wrong.reshape(len(found), -1).any(axis=1)))
        raise DataError(
            f"Example {row:,} of {file} holds {found[row][wrong[row]].flat[0]:g}, which is not a finite "
            f"{kind.name}; correct it."
        )
    if kind.kind in "biu" and (wrong := cast != found).any():
        row = int(np.argmax(wrong.reshape(len(found), -1).any(axis=1)))
        seen = found[row][wrong[row]].flat[0]
        raise DataError(
            f"Example {row:,} of {file} holds {seen:g}, but the model was trained on numbers of type {kind.name}. "
            "Give the same kind of numbers."
        )
    return cast


def _numbered(labels: Array, inputs: Inputs) -> Array:
    """The labels as the model has them. ValueError says why they can't be scored."""
    if not inputs.has_classes:
        try:
            numbers: Array = labels.astype(inputs.label_dtype)
        except ValueError as error:
            raise ValueError(f"the labels are no numbers ({error})") from error
        return numbers
    names = [name_of(label) for label in labels.tolist()]
    places = {name: place for place, name in enumerate(inputs.classes or ())}
    if inputs.classes and len(places) == 2 and inputs.classes[0] == NOT.format(inputs.classes[1]):
        places = dict.fromkeys(names, 0) | places  # all other classes were one
    if not inputs.classes:
        if not all(name.isdecimal() for name in names):
            raise ValueError(f"the labels are {_some(names)}; expected numbers of classes, from 0")
        return np.array([int(name) for name in names], inputs.label_dtype)
    if strange := [name for name in names if name not in places]:
        raise ValueError(f"the labels are {_some(strange)}; the model's classes are {_some(list(inputs.classes))}")
    return np.array([places[name] for name in names], inputs.label_dtype)


def _some(names: list[str]) -> str:
    shown = sorted(set(names), key=names.index)
    return ", ".join(shown[:_SHOWN]) + (", ..." if len(shown) > _SHOWN else "")
