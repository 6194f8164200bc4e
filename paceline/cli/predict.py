"""`paceline predict`: what a linear model says about the examples of a LIBSVM file, and how often that is right."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.cli.run_folder import find_run
from paceline.core.errors import DataError, UsageError
from paceline.core.linear_score import Hits
from paceline.core.svm import Examples, margins
from paceline.core.values import Vector
from paceline.data.linear_model import Labels, LinearClassifier, read_linear_model
from paceline.data.svmlight import read_svmlight
from paceline.data.whole_file import replacing

LAST = "last.safetensors"
_SHOWN = 5
"""Labels that are named where there are too many."""


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    model: str
    features: int
    counts: dict[int, int]
    """Examples that are taken for each class of the model."""
    hits: Hits | None
    """None where the file's labels are not of two classes that can be told."""
    labels: Labels | str
    """The file's labels, or why there are no hits."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        found = asdict(self)
        del found["hits"], found["labels"]
        return found | (self.hits._asdict() if self.hits else {"unscored": self.labels})

    def lines(self) -> list[str]:
        """For people."""
        each = ", ".join(f"{count:,} as {label}" for label, count in self.counts.items())
        found = [
            f"model {self.model}: {self.features:,} features",
            f"{sum(self.counts.values()):,} examples: {each}",
        ]
        if self.hits is None or isinstance(self.labels, str):
            return [*found, f"not scored: {self.labels}"]
        named = ", ".join(f"{name} {value:.4f}" for name, value in self.hits._asdict().items())
        others = "all others" if self.labels.negative is None else f"{self.labels.negative:g}"
        return [*found, f"{named} (of label {self.labels.positive:g} against {others})"]


def predict(model: str, file: str, out: Path | None, with_margins: bool) -> Report:
    """Scores the file with the model (a file or the name of a run) and writes the predictions, a line for each example.
    UsageError: no such model; DataError: a damaged one, or a file that does not fit it; DiskError: they can't be written."""
    if with_margins and out is None:
        raise UsageError("--margins are written beside the predictions; say where with --out FILE.")
    path = find_model(model)
    classifier = read_linear_model(path)
    found, own = _margins(classifier, file, path)
    if out is not None:
        _write(out, classifier.labels, found, with_margins)
    counts = np.bincount(found > 0, minlength=2)
    labels = file_labels(own, classifier.labels)
    return Report(
        str(path),
        len(classifier.weights),
        {label: int(count) for label, count in zip(classifier.labels.names, counts, strict=True)},
        None if isinstance(labels, str) else Hits.of(np.where(own == labels.positive, 1, -1).astype(np.float32), found),
        labels,
    )


def find_model(model: str) -> Path:
    """The model's file: the path itself, the last model in the folder of that path (as `paceline local` writes one), or the
    final model of the run of that name."""
    for path in (Path(model), Path(model) / LAST):
        if path.is_file():
            return path
    try:
        folder = find_run(model)
    except UsageError as error:
        raise UsageError(f"There is no model {model}: neither a file, nor a folder with {LAST}. {error}") from error
    path = folder.models / LAST
    if not path.is_file():
        raise DataError(f"There is no {path}: run '{folder.name}' was not scored. See {folder.path / 'logs'}.")
    return path


def file_labels(own: Vector, labels: Labels) -> Labels | str:
    """Which of the file's labels is which class of the model. Where the model tells one label from all others, so it is
    here. Else the file has two labels: those of the model, or -1 and 1, or 0 and 1, or any two where the model's are -1 and
    1; the lower one is the lower class, as the sharder numbers classes. Or why they can't be told."""
    there = np.unique(own).tolist()
    shown = ", ".join(f"{label:g}" for label in there[:_SHOWN]) + (", ..." if len(there) > _SHOWN else "")
    if labels.negative is None:
        if labels.positive in there and len(there) > 1:
            return labels
        return f"the file's labels are {shown}; expected {labels.positive} and others, as in the model's data"
    pairs = (set(labels), set(Labels()), {0, 1})
    if set(there) in pairs or (set(labels) == set(Labels()) and len(there) == 2):
        low, high = there
        return Labels(low, high) if labels.negative < labels.positive else Labels(high, low)
    return f"the file's labels are {shown}; expected both {labels.negative} and {labels.positive}, as in the model"


def _margins(classifier: LinearClassifier, file: str, path: Path) -> tuple[Vector, npt.NDArray[np.float32]]:
    """Of each example in the file the margin, and its label as it stands there."""
    try:
        rows = read_svmlight(file, features=len(classifier.weights), classes=False, dense=False).train
    except DataError as error:
        raise DataError(f"{error} The model {path} has {len(classifier.weights):,} features.") from error
    examples = Examples.of(rows.features, np.zeros(len(rows), np.int64))
    return margins(examples, classifier.weights) + np.float32(classifier.offset), rows.labels


def _write(out: Path, labels: Labels, found: Vector, with_margins: bool) -> None:
    """The label of each prediction, with its margin behind it if wanted."""
    with replacing(out, "the predictions") as temporary, temporary.open("w", encoding="ascii") as stream:
        for margin in found.tolist():
            beside = f" {margin:.9g}" if with_margins else ""
            stream.write(f"{labels.names[margin > 0]}{beside}\n")
