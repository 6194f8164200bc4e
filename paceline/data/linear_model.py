"""Files of linear models: safetensors with a tensor `weights` (D,), float32, or (classes, D) of more than two, and where there
is an intercept `intercept` (1,) or (classes,); and LIBLINEAR's text."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from itertools import dropwhile, islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from paceline.core.errors import ConfigError
from paceline.core.slice.plan import Shapes
from paceline.core.values import Vector
from paceline.data.files import reading
from paceline.data.inputs import Inputs
from paceline.data.manifest import Manifest
from paceline.data.out_of_core import ranges
from paceline.data.whole_file import replacing

WEIGHTS, INTERCEPT = "weights", "intercept"
LOSS = "loss_kind"
"""Where a model's file says among its metadata what it was trained with."""
TOGETHER = "MCSVM_CS"
"""What LIBLINEAR calls the training of several classes together. It knows no softmax; predictions of the two are alike."""
SOLVERS = {
    "hinge": "L2R_L1LOSS_SVC_DUAL",
    "logistic": "L2R_LR",
    "squared_hinge": "L2R_L2LOSS_SVC_DUAL",
    "softmax": "L2R_LR",
}
"""What it calls the training of each loss; of two classes softmax is logistic."""
EXPECTED = (
    "Expected safetensors with a tensor 'weights' (D,), as a run with sparse updates writes, or LIBLINEAR's text."
)
_TEXT = b"solver_type"
_HEADER = 16
"""More lines than these don't come before the weights."""
_LINE = 1 << 10
"""Longest line that is read before the weights (characters)."""


class Labels(NamedTuple):
    """What the two classes are called in the data."""

    negative: int | None = -1
    """None: all other labels are of this class."""
    positive: int = 1

    @classmethod
    def of(cls, positive: str | None, names: Sequence[str] = ()) -> "Labels":
        """Those of a model that was trained to tell the class `positive` from all others; None: to tell classes of these
        `names`, the negative one first, if there are two. A name that is no whole number, such as a topic, can't be written in
        LIBSVM text, where it is 1 and all others -1."""
        try:
            if positive is not None:
                return cls(None, int(positive))
            return cls(*map(int, names)) if len(names) == len(cls._fields) else cls()
        except ValueError:
            return cls()

    @property
    def names(self) -> tuple[int, int]:
        """What predictions are called, the negative one first."""
        if self.negative is None:
            return (1 if self.positive == -1 else -1), self.positive
        return self.negative, self.positive


class LinearClassifier(NamedTuple):
    """A model: positive where x.w + offset > 0; of more than two classes, the one for which this is largest."""

    weights: Vector
    """(D,), or (classes, D)"""
    labels: Labels
    offset: float = 0.0
    offsets: Vector | None = None
    """Of more than two classes, one for each."""
    names: tuple[str, ...] = ()
    """What the classes are called, by number, where that is known: the negative one first, or all of them."""


class Parts(NamedTuple):
    """The weights of a model, as files have them."""

    weights: Vector
    """(D,), or (classes, D)"""
    intercept: Vector
    """(1,) or (classes,); empty where there is none"""

    @classmethod
    def of(cls, flat: Vector, classes: int, intercept: bool) -> "Parts":
        """Of what is trained: for each class (of two: once) the weights, and behind them the intercept if there is one."""
        each = flat.reshape(1 if classes == 2 else classes, -1)
        weights, ends = (each[:, :-1], each[:, -1]) if intercept else (each, each[:, :0])
        return cls(np.ascontiguousarray(weights[0] if classes == 2 else weights), ends.reshape(-1).copy())


def shapes_of(manifest: Manifest, intercept: bool = False) -> Shapes:
    """The model that is trained on these shards: a weight for each feature and one for the intercept, of two classes once, of
    more for each class. ConfigError where their rows are not sparse."""
    width = manifest.shards[0].columns
    if width is None:
        raise ConfigError(
            f"The shards of task '{manifest.recipe.task}' hold dense rows, but updates: sparse trains a linear "
            "model over sparse rows. Leave out `updates`, or read the data as sparse rows (dense=False)."
        )
    classes = classes_of(manifest)
    return ((WEIGHTS, ((width + intercept) * (1 if classes == 2 else classes),)),)


def classes_of(manifest: Manifest) -> int:
    """How many classes a linear model of these shards tells apart, two at least."""
    return max(
        2, len(manifest.classes or ()), *(int(label) + 1 for entry in manifest.shards for label in entry.classes)
    )


def save_safetensors(path: Path, model: Parts | Vector, labels: Labels, facts: Mapping[str, str]) -> None:
    """Writes the model with its labels and these facts as metadata; a reader sees the old file or the whole new one.
    DiskError where it can't be written."""
    parts = _parts(model)
    named = {name: str(label) for name, label in labels._asdict().items() if label is not None}
    tensors = {WEIGHTS: parts.weights} | ({INTERCEPT: parts.intercept} if len(parts.intercept) else {})
    with replacing(path, "the model") as temporary:
        save_file(tensors, temporary, {**facts, **named})


def save_liblinear(path: Path, model: Parts | Vector, labels: Labels, loss: str, names: Sequence[str] = ()) -> None:
    """Writes the model as LIBLINEAR's own programs read it, each weight so that the same float32 is read back. `loss`: that
    of `Objective`; `names`: of more than two classes, which are numbered from 0 unless all names are whole numbers. DiskError
    where it can't be written."""
    parts = _parts(model)
    rows = parts.weights.reshape(-1, parts.weights.shape[-1])
    several = len(rows) > 1
    called = _whole(names, len(rows)) if several else list(reversed(labels.names))
    bias = 1 if len(parts.intercept) else -1
    solver = TOGETHER if several and loss == "softmax" else SOLVERS[loss]
    header = (
        f"solver_type {solver}\nnr_class {len(called)}\nlabel {' '.join(map(str, called))}\n"
        f"nr_feature {rows.shape[1]}\nbias {bias}\nw\n"
    )
    with replacing(path, "the model") as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write(header)
        for start, stop in ranges(rows.shape[1], 64 * len(rows)):
            stream.writelines(_lines(rows[:, start:stop]))
        if len(parts.intercept):
            stream.writelines(_lines(parts.intercept[:, None]))


def _parts(model: Parts | Vector) -> Parts:
    return model if isinstance(model, Parts) else Parts(model, np.empty(0, np.float32))


def _whole(names: Sequence[str], count: int) -> list[int]:
    """The names as LIBLINEAR can have them."""
    try:
        return [int(name) for name in names] if len(names) == count else list(range(count))
    except ValueError:
        return list(range(count))


def read_linear_model(path: Path) -> LinearClassifier:
    """The model in a file of either form; LIBLINEAR's numbers are rounded to float32. DataError: neither form, damaged, or
    no linear model of classes."""
    with reading(path, EXPECTED):
        with path.open("rb") as stream:
            is_text = stream.read(len(_TEXT)) == _TEXT
        found = _read_liblinear(path) if is_text else _read_safetensors(path)
        if not found.weights.size:
            raise ValueError("it has no weights")
        offsets = found.offset if found.offsets is None else found.offsets
        if not (np.isfinite(found.weights).all() and np.isfinite(offsets).all()):
            raise ValueError("some of its weights are NaN or infinite")
        if found.labels.negative == found.labels.positive:
            raise ValueError(f"both of its classes are called {found.labels.positive}")
    return found


def _lines(weights: Vector) -> Iterator[str]:
    """A line for each feature of these (classes, features); most are 0 where there are many features."""
    if len(weights) == 1:
        return (f"{weight:.9g}\n" if weight else "0\n" for weight in weights[0].tolist())
    return (" ".join(f"{weight:.9g}" for weight in own) + "\n" for own in weights.T.tolist())


def _read_safetensors(path: Path) -> LinearClassifier:
    try:
        with safe_open(path, "numpy") as file:
            names, facts = sorted(file.keys()), file.metadata() or {}
            if WEIGHTS not in names or not {WEIGHTS, INTERCEPT}.issuperset(names):
                raise ValueError(f"it is no linear model: its tensors are {', '.join(names[:5]) or 'none'}")
            weights = file.get_tensor(WEIGHTS)
            ends = file.get_tensor(INTERCEPT) if INTERCEPT in names else np.zeros(len(np.atleast_2d(weights)))
    except SafetensorError as error:
        raise ValueError(f"it is neither LIBLINEAR's text nor whole safetensors ({error})") from error
    if weights.ndim not in (1, 2) or (weights.ndim == 2 and len(weights) < 3) or weights.dtype.kind != "f":
        raise ValueError(f"its weights are {weights.dtype} of shape {weights.shape}")
    if ends.shape != (1 if weights.ndim == 1 else len(weights),):
        raise ValueError(f"its intercept has the shape {ends.shape}, its weights {weights.shape}")
    labels = Labels(**{name: int(facts[name]) for name in Labels._fields if name in facts})
    if "positive" in facts and "negative" not in facts:
        labels = labels._replace(negative=None)
    inputs = Inputs.read(facts)
    called = (inputs and inputs.classes) or ()
    weights = weights.astype(np.float32, copy=False)
    if weights.ndim == 1:
        return LinearClassifier(weights, labels, float(ends[0]), None, called)
    return _of_several(weights, ends.astype(np.float32), called)


def _of_several(weights: Vector, offsets: Vector, names: tuple[str, ...]) -> LinearClassifier:
    """A model of more than two classes; ValueError where names and weights don't fit."""
    called = names or tuple(map(str, range(len(weights))))
    if len(called) != len(weights):
        raise ValueError(f"it has weights of {len(weights)} classes, but {len(called)} names")
    return LinearClassifier(weights, Labels(), 0.0, offsets, called)


def _read_liblinear(path: Path) -> LinearClassifier:
    with path.open(encoding="ascii") as stream:
        header = _read_header(stream)
        classes, width, bias = _labels(header), int(header["nr_feature"]), float(header["bias"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is nothing, which an error below says
            try:
                weights = np.loadtxt(stream, np.float64, comments=None, ndmin=1 if len(classes) == 2 else 2)
            except ValueError as error:
                raise ValueError(_fault(path, 1 if len(classes) == 2 else len(classes)) or str(error)) from error
    lines = width + (bias >= 0)
    expected = (lines,) if len(classes) == 2 else (lines, len(classes))
    if weights.shape != expected:
        found = "x".join(map(str, weights.shape))
        each = "one" if len(classes) == 2 else f"{len(classes)}"
        raise ValueError(f"it has {found} weights; its header says {lines:,}, {each} in each line")
    ends = bias * np.atleast_1d(weights[-1]) if bias >= 0 else np.zeros(max(1, len(classes)))
    kept: Vector = weights[:width].astype(np.float32)
    if len(classes) == 2:
        positive, negative = classes
        return LinearClassifier(kept, Labels(negative, positive), float(ends[0]))
    return _of_several(np.ascontiguousarray(kept.T), ends.astype(np.float32), tuple(map(str, classes)))


def _fault(path: Path, numbers: int) -> str | None:
    """The first line after the header that does not hold this many numbers, for people."""
    with path.open(encoding="ascii") as stream:
        lines = dropwhile(lambda line: line[1].strip() != "w", enumerate(stream, 1))
        for number, line in islice(lines, 1, None):
            words = [line.strip()] if numbers == 1 else line.split()
            try:
                right = len([float(word) for word in words]) == numbers
            except ValueError:
                right = False
            if not right:
                expected = "a number" if numbers == 1 else f"{numbers} numbers"
                return f"line {number:,} ({line.strip()[:80]!r}): expected {expected}"
    return None


def _read_header(stream: TextIO) -> dict[str, str]:
    """What stands before the weights. ValueError where something is missing."""
    header: dict[str, str] = {}
    for _ in range(_HEADER):
        key, _, value = stream.readline(_LINE).strip().partition(" ")
        if key == "w":
            break
        header[key] = value
    missing = [key for key in ("solver_type", "nr_class", "nr_feature", "bias") if key not in header]
    if key != "w" or missing:
        raise ValueError(f"its header is not whole: {', '.join(missing) or 'w'} is missing")
    return header


def _labels(header: Mapping[str, str]) -> list[int]:
    """The labels in their order, of two the positive one first. ValueError where the model is no classifier that has weights
    for one class, or each of several, against the others."""
    if "label" not in header:
        raise ValueError(f"it is a model for {header['solver_type']}, which has no classes; expected a classifier")
    found = [int(label) for label in header["label"].split()]
    if header["solver_type"] == TOGETHER and len(found) == 2:
        raise ValueError(f"it is a model for {TOGETHER}, with weights for each class; expected another solver")
    if len(found) < 2 or header["nr_class"] != str(len(found)):
        raise ValueError(f"it has {header['nr_class']} classes and {len(found)} labels; expected two or more")
    return found
