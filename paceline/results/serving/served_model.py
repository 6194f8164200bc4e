"""The model that answers, and the one that the next version is read into: they change places between two batches."""

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError, NotYet, UsageError
from paceline.data.dataset import Array
from paceline.data.examples_to_predict import fitted
from paceline.data.inputs import Inputs
from paceline.results.model.live_run import Versions
from paceline.results.model.run_model import Trained
from paceline.results.model.run_weights import ModuleWeights, Source

Rows = npt.NDArray[Any]


class Answer(NamedTuple):
    """What the model says about some examples."""

    rows: Rows
    """(examples, classes): probabilities; or (examples, numbers)."""
    labels: Sequence[str]
    """The class of each; empty where numbers are predicted."""
    versions: tuple[int, ...]
    """Of the model's slices (folds)."""

    def part(self, start: int, stop: int) -> "Answer":
        """Of some of the examples."""
        return Answer(self.rows[start:stop], self.labels[start:stop], self.versions)


class ServedModel:
    """Answers by the newest version. `apply` and `swap` may be called by different threads; `spare` belongs to the one that
    swaps."""

    def __init__(self, source: Source, device: str) -> None:
        """ConfigError: a kind of model that is not served; DataError: the form of its examples is not known."""
        config = source.config
        if config.data.source == "script":
            raise ConfigError(
                f"Run '{source.name}' trained a script's model, whose code only the script has, so it can't be served. Use "
                "paceline pull, and load the file where you have the code."
            )
        if config.updates == "sparse":
            raise ConfigError(
                f"Run '{source.name}' trains a linear model over sparse rows, which is not served. Use paceline pull and "
                "paceline predict."
            )
        self.spare = ModuleWeights(source, device)
        self._present: ModuleWeights | None = ModuleWeights(source, device)
        self._lock = threading.Lock()
        self._versions: tuple[int, ...] | None = None
        self.task = self.spare.task
        self.inputs = _inputs_of(source, self.spare)

    @property
    def versions(self) -> tuple[int, ...] | None:
        """Of the model that answers; None before there is one."""
        return self._versions

    def swap(self, versions: Versions) -> None:
        """What `spare` holds answers from the next batch on."""
        with self._lock:
            self.spare, self._present = self._present, self.spare  # type: ignore[assignment]
            self._versions = versions.of_slices

    def checked(self, values: Any) -> Array:
        """Examples of a request in the model's shape and type. UsageError says what was seen and what is expected."""
        wanted = (
            f"expected numbers of the shape (examples, {', '.join(map(str, self.inputs.shape))}), or flat rows of "
            f"{self.inputs.size:,}"
        )
        try:
            found = _by_row(values, self.inputs.size) if isinstance(values, list) else np.asarray(values)
        except (ValueError, RecursionError):
            raise UsageError(f"The examples have different shapes, or are too long; {wanted}.") from None
        if found.dtype.kind not in "buif":
            raise UsageError(f"The examples hold what is no number ({found.dtype.name}); {wanted}.")
        if found.ndim < 2 or not len(found):
            raise UsageError(f"The request's examples have the shape {found.shape}; {wanted}.")
        try:
            fit: Array = fitted(found, self.inputs, "the request")
        except Exception as error:
            raise UsageError(str(error)) from None
        return fit

    def apply(self, features: Array) -> Answer:
        """The answer by the newest version. NotYet: there is none."""
        from paceline.results.model.module_predictions import names_of, rows_of

        labels = np.zeros((len(features), *self.inputs.label_shape), self.inputs.label_dtype)
        with self._lock:
            if self._versions is None or self._present is None:
                raise NotYet("There is no model yet: the run has not begun to train. Try again in a moment.")
            found = [
                rows_of(outputs, self.task, self.inputs)
                for outputs, _ in self._present.replica.outputs(features, labels)
            ]
            versions = self._versions
        rows, is_classes = np.concatenate([part for part, _ in found]), found[0][1]
        names = names_of(self.inputs, rows.shape[1]) if is_classes else []
        return Answer(rows, [names[place] for place in rows.argmax(1).tolist()] if is_classes else [], versions)


def _by_row(values: list[Any], most: int) -> Rows:
    """Returns lists of lists as an array, made row by row, so that other threads get their turn. Raises ValueError where
    rows differ, and at once where one has more than `most` numbers."""
    if any(_count(row) > most for row in values):
        raise ValueError
    return np.asarray([np.asarray(row) for row in values])


def _count(row: Any) -> int:
    """Returns how many numbers are in lists of lists; an empty one counts, too."""
    if not isinstance(row, list) or not row:
        return 1
    return sum(map(_count, row)) if isinstance(row[0], list) else len(row)


def _inputs_of(source: Source, weights: ModuleWeights) -> Inputs:
    """The form of the examples: by the run's shards, or by the model that it has kept."""
    if weights.inputs is not None:
        return weights.inputs
    if source.place is None:
        raise ConfigError(
            f"There are no shards in {source.shards}, which say what examples the model takes. Give their folder with "
            "--shards."
        )
    return Trained(source.place).inputs()
