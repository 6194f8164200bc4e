"""What a linear model says about the examples of a file: LIBSVM text, RCV1 as published, or what its task's tables are."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
from safetensors import safe_open

from paceline.core.errors import DataError, UsageError
from paceline.core.linear.examples import Examples
from paceline.core.linear.score import Hits, margins
from paceline.core.values import Vector
from paceline.data.classes import name_of
from paceline.data.examples_to_predict import NewExamples, is_rcv1, local, read_new
from paceline.data.files import ending
from paceline.data.inputs import Inputs
from paceline.data.linear_model import LOSS, TOGETHER, Labels, LinearClassifier, read_linear_model
from paceline.data.rcv1 import read_documents
from paceline.data.row_weights import said_of, weights_beside
from paceline.data.svmlight import read_rows
from paceline.data.table import ENDINGS
from paceline.results.model.predict import Report, Wanted, csv_lines, digits

_SHOWN = 5
"""Labels that are named where there are too many."""


def apply_linear(path: Path, file: str, wanted: Wanted) -> Report:
    """A label is the positive one where its margin, x.w + offset, is above 0; of more than two classes, the one whose margin
    is largest. UsageError: probabilities of a model whose loss gives none; others as for `predict`."""
    classifier, facts = read_linear_model(path), _facts(path)
    if wanted.probabilities and facts.get(LOSS) not in ("logistic", "softmax"):
        raise UsageError(
            f"--proba: {path} was trained with the loss {facts.get(LOSS, 'that its file does not name')}, which "
            "gives margins but no probabilities. Use --margins, or train with --set svm.objective.loss=logistic."
        )
    inputs = Inputs.read(facts)
    width = classifier.weights.shape[-1]
    new = _read(width, file, path, inputs)
    examples = Examples.of(new.features, np.zeros(len(new), np.int64))
    each = classifier.weights if classifier.weights.ndim == 2 else classifier.weights[None]
    offsets = classifier.offset if classifier.offsets is None else classifier.offsets
    found = np.stack([margins(examples, weights) for weights in each], 1) + np.asarray(offsets, np.float32)
    called = found.argmax(1) if len(each) > 1 else (found[:, 0] > 0).astype(np.int64)
    names = _names(classifier, inputs)
    hits, unscored, of = None, new.unscored, ""
    if new.labels is not None:
        if inputs is not None and inputs.classes and _has_form(file, inputs):
            hits, of = _scored_by_number(new.labels, found, called, names)
        else:
            own = new.labels.astype(np.float32)
            hits, unscored, of = _scored(own, found, called, classifier, names, new.weights)
    counts = {name: int(count) for name, count in zip(names, np.bincount(called, minlength=len(names)), strict=True)}
    return Report(
        str(path),
        width,
        len(found),
        _lines(names, called, found, wanted, facts.get(LOSS) == "softmax"),
        counts,
        hits._asdict() if hits else {},
        unscored,
        new.as_read,
        of,
    )


def _scored(
    own: Vector,
    found: Vector,
    called: npt.NDArray[np.int64],
    classifier: LinearClassifier,
    names: tuple[str, ...],
    weights: Vector | None,
) -> tuple[Hits | None, str, str]:
    """How often the predictions are right, by the rows' weights, otherwise why that can't be said; and of which label against
    which. `own`: the labels as in the file."""
    if len(names) > 2:
        places = {name: place for place, name in enumerate(names)}
        there = {label: places.get(name_of(label)) for label in np.unique(own).tolist()}
        if strange := [name_of(label) for label, place in there.items() if place is None]:
            return None, f"the file's labels are {_some(strange)}; the model's classes are {_some(list(names))}", ""
        return Hits.of_classes(np.array([there[label] for label in own.tolist()]), called, weights), "", ""
    known = file_labels(own, classifier.labels)
    if isinstance(known, str):
        return None, known, ""
    others = "all others" if known.negative is None else name_of(known.negative)
    hits = Hits.of(np.where(own == known.positive, 1, -1).astype(np.float32), found[:, 0], weights)
    return hits, "", f" (of label {name_of(known.positive)} against {others})"


def _scored_by_number(
    own: npt.NDArray[np.int64], found: Vector, called: npt.NDArray[np.int64], names: tuple[str, ...]
) -> tuple[Hits, str]:
    """`_scored` of labels that are the model's numbers already."""
    if len(names) > 2:
        return Hits.of_classes(own.astype(np.float32), called), ""
    hits = Hits.of(np.where(own == 1, 1, -1).astype(np.float32), found[:, 0])
    return hits, f" (of label {names[1]} against {names[0]})"


def _some(labels: list[str]) -> str:
    return ", ".join(labels[:_SHOWN]) + (", ..." if len(labels) > _SHOWN else "")


def file_labels(own: Vector, labels: Labels) -> Labels | str:
    """Which of the file's labels is which class of the model. Where the model tells one label from all others, so it is
    here. Otherwise the file has two labels: those of the model, or -1 and 1, or 0 and 1, or any two where the model's are
    -1 and 1; the lower one is the lower class, as the sharder numbers classes. Or why that is not known."""
    there = np.unique(own).tolist()
    shown = _some([name_of(label) for label in there])
    if labels.negative is None:
        if labels.positive in there and len(there) > 1:
            return labels
        return f"the file's labels are {shown}; expected {labels.positive} and others, as in the model's data"
    pairs = (set(labels), set(Labels()), {0, 1})
    if set(there) in pairs or (set(labels) == set(Labels()) and len(there) == 2):
        low, high = there
        return Labels(low, high) if labels.negative < labels.positive else Labels(high, low)
    return f"the file's labels are {shown}; expected both {labels.negative} and {labels.positive}, as in the model"


def _facts(path: Path) -> dict[str, str]:
    """What the file says besides its weights; of LIBLINEAR's text the loss."""
    with path.open("rb") as stream:
        first = stream.readline(100)
    if first.startswith(b"solver_type"):
        if TOGETHER.encode() in first:
            return {}
        return {LOSS: "logistic" if first.split()[-1].rstrip().endswith((b"_LR", b"_LR_DUAL")) else "hinge"}
    with safe_open(path, "numpy") as opened:
        return opened.metadata() or {}


def _names(classifier: LinearClassifier, inputs: Inputs | None) -> tuple[str, ...]:
    """What predictions are called, of two the negative one first: as in the data, where the model knows."""
    several = len(classifier.weights) if classifier.weights.ndim == 2 else 2
    for known in (inputs.classes if inputs is not None else None, classifier.names):
        if known is not None and len(known) == several:
            return tuple(known)
    negative, positive = classifier.labels.names
    return str(negative), str(positive)


def _read(width: int, path: str, model: Path, inputs: Inputs | None) -> NewExamples:
    """The rows, and the labels as in the file, where it has some; those of a table as the model numbers them."""
    weights, told = None, tuple[str, ...]()
    if inputs is not None and _has_form(path, inputs):
        return read_new(path, inputs)
    try:
        with local(path) as file:
            if is_rcv1(file):
                topic = inputs.classes[-1] if inputs is not None and inputs.classes else "CCAT"
                rows, labels = read_documents(file, topic, width)
            else:
                rows, labels = read_rows(file, width)
                weights = None if labels is None else weights_beside(file, len(labels))
                told = said_of(file, weights)
    except DataError as error:
        raise DataError(f"{error} The model {model} has {width:,} features.") from error
    return NewExamples(rows, labels, as_read=told, weights=weights)


def _has_form(path: str, inputs: Inputs) -> bool:
    """Whether the file is read by what is known of the training data."""
    return ending(Path(path)) in (*ENDINGS, ".npy", ".npz") or (path == "-" and inputs.columns is not None)


def _lines(
    names: tuple[str, ...], called: npt.NDArray[np.int64], found: Vector, wanted: Wanted, softmax: bool
) -> list[str]:
    """The label of each example, with its margins behind it if wanted; or a CSV with the probabilities, those of more than
    two classes by softmax, or made to sum up to 1, as LIBLINEAR does."""
    labels = [names[place] for place in called.tolist()]
    if wanted.probabilities:
        wide = found.astype(np.float64)
        is_joint = softmax and len(names) > 2
        each = np.exp(wide - wide.max(1, keepdims=True)) if is_joint else 1 / (1 + np.exp(-wide))
        each = np.hstack([1 - each, each]) if len(names) == 2 else each / each.sum(1, keepdims=True)
        rows = ([label, *map(digits, row)] for label, row in zip(labels, each.tolist(), strict=True))
        return csv_lines([("label", *names), *rows])
    if not wanted.margins:
        return labels
    return [" ".join([label, *map(digits, row)]) for label, row in zip(labels, found.tolist(), strict=True)]
