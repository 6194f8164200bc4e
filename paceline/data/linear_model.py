"""Files of linear models: safetensors with one tensor `weights` (D,), float32, and LIBLINEAR's text."""

import warnings
from collections.abc import Iterator, Mapping
from itertools import dropwhile, islice
from pathlib import Path
from typing import NamedTuple, TextIO

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from paceline.core.errors import ConfigError
from paceline.core.plan import Shapes
from paceline.core.values import Vector
from paceline.data.files import reading
from paceline.data.manifest import Manifest
from paceline.data.out_of_core import ranges
from paceline.data.whole_file import replacing

WEIGHTS = "weights"
SOLVERS = {"hinge": "L2R_L1LOSS_SVC_DUAL", "logistic": "L2R_LR"}
"""What LIBLINEAR calls the training of each loss."""
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
    def against_others(cls, positive: str | None) -> "Labels":
        """Those of a model that was trained to tell the class `positive` from all others; None: -1 and 1. A name that is
        no whole number, such as a topic, can't stand in LIBSVM text, where it is 1 and all else -1."""
        try:
            return cls() if positive is None else cls(None, int(positive))
        except ValueError:
            return cls()

    @property
    def names(self) -> tuple[int, int]:
        """What predictions are called, the negative one first."""
        if self.negative is None:
            return (1 if self.positive == -1 else -1), self.positive
        return self.negative, self.positive


class LinearClassifier(NamedTuple):
    """A model: positive where x.w + offset > 0."""

    weights: Vector
    """(D,)"""
    labels: Labels
    offset: float = 0.0


def shapes_of(manifest: Manifest) -> Shapes:
    """The model that is trained on these shards. ConfigError where their rows are not sparse."""
    width = manifest.shards[0].columns
    if width is None:
        raise ConfigError(
            f"The shards of task '{manifest.recipe.task}' hold dense rows, but updates: sparse trains a linear model over "
            "sparse rows. Leave `updates` out, or read the data as sparse rows (dense=False)."
        )
    return ((WEIGHTS, (width,)),)


def save_safetensors(path: Path, weights: Vector, labels: Labels, facts: Mapping[str, str]) -> None:
    """Writes the model with its labels and these facts as metadata; a reader sees the old file or the whole new one.
    DiskError where it can't be written."""
    named = {name: str(label) for name, label in labels._asdict().items() if label is not None}
    with replacing(path, "the model") as temporary:
        save_file({WEIGHTS: weights}, temporary, {**facts, **named})


def save_liblinear(path: Path, weights: Vector, labels: Labels, loss: str) -> None:
    """Writes the model as LIBLINEAR's own programs read it, each weight so that the same float32 is read back. `loss`: that
    of `Objective`. DiskError where it can't be written."""
    negative, positive = labels.names
    header = (
        f"solver_type {SOLVERS[loss]}\nnr_class 2\nlabel {positive} {negative}\nnr_feature {len(weights)}\nbias -1\nw\n"
    )
    with replacing(path, "the model") as temporary, temporary.open("w", encoding="ascii") as stream:
        stream.write(header)
        for start, stop in ranges(len(weights), 64):
            stream.writelines(_lines(weights[start:stop]))


def read_linear_model(path: Path) -> LinearClassifier:
    """The model in a file of either form; LIBLINEAR's numbers are rounded to float32. DataError: neither form, damaged, or
    no linear model of two classes."""
    with reading(path, EXPECTED):
        with path.open("rb") as stream:
            is_text = stream.read(len(_TEXT)) == _TEXT
        found = _read_liblinear(path) if is_text else _read_safetensors(path)
        if not len(found.weights):
            raise ValueError("it has no weights")
        if not (np.isfinite(found.weights).all() and np.isfinite(found.offset)):
            raise ValueError("some of its weights are NaN or infinite")
        if found.labels.negative == found.labels.positive:
            raise ValueError(f"both of its classes are called {found.labels.positive}")
    return found


def _lines(weights: Vector) -> Iterator[str]:
    """A line for each weight; most are 0 where there are many features."""
    return (f"{weight:.9g}\n" if weight else "0\n" for weight in weights.tolist())


def _read_safetensors(path: Path) -> LinearClassifier:
    try:
        with safe_open(path, "numpy") as file:
            names, facts = list(file.keys()), file.metadata() or {}
            if names != [WEIGHTS]:
                raise ValueError(f"it is no linear model: its tensors are {', '.join(names[:5]) or 'none'}")
            weights = file.get_tensor(WEIGHTS)
    except SafetensorError as error:
        raise ValueError(f"it is neither LIBLINEAR's text nor whole safetensors ({error})") from error
    if weights.ndim != 1 or weights.dtype.kind != "f":
        raise ValueError(f"its weights are {weights.dtype} of shape {weights.shape}")
    labels = Labels(**{name: int(facts[name]) for name in Labels._fields if name in facts})
    if "positive" in facts and "negative" not in facts:
        labels = labels._replace(negative=None)
    return LinearClassifier(weights.astype(np.float32, copy=False), labels)


def _read_liblinear(path: Path) -> LinearClassifier:
    with path.open(encoding="ascii") as stream:
        header = _read_header(stream)
        labels, width, bias = _labels(header), int(header["nr_feature"]), float(header["bias"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there is nothing, which is told below
            try:
                weights = np.loadtxt(stream, np.float64, comments=None, ndmin=1)
            except ValueError as error:
                raise ValueError(_fault(path) or str(error)) from error
    expected = width + (bias >= 0)
    if weights.shape != (expected,):
        found = "x".join(map(str, weights.shape))
        raise ValueError(f"it has {found} weights; its header says {expected:,}, one in each line")
    offset = bias * float(weights[-1]) if bias >= 0 else 0.0
    return LinearClassifier(weights[:width].astype(np.float32), labels, offset)


def _fault(path: Path) -> str | None:
    """The first line after the header that is no number, for people."""
    with path.open(encoding="ascii") as stream:
        lines = dropwhile(lambda line: line[1].strip() != "w", enumerate(stream, 1))
        for number, line in islice(lines, 1, None):
            try:
                float(line)
            except ValueError:
                return f"line {number:,} ({line.strip()[:80]!r}): expected a number"
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


def _labels(header: Mapping[str, str]) -> Labels:
    """ValueError where the model does not tell two classes apart by one weight for each feature."""
    if header["nr_class"] != "2":
        raise ValueError(f"it has {header['nr_class']} classes; expected 2")
    if "label" not in header:
        raise ValueError(f"it is a model for {header['solver_type']}, which has no classes; expected a classifier")
    if header["solver_type"] == "MCSVM_CS":
        raise ValueError("it is a model for MCSVM_CS, with weights for each class; expected another solver")
    positive, negative = (int(label) for label in header["label"].split())
    return Labels(negative, positive)
