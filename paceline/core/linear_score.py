"""How well a linear model does on some rows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.core.examples import Examples, Longs
from paceline.core.objective import Objective
from paceline.core.svm_loops import find_margins
from paceline.core.values import Vector

f32 = np.float32


class Hits(NamedTuple):
    """How often predictions are right (ratios). Of more than two classes, precision, recall and F1 are the means over the
    classes that occur."""

    accuracy: float
    precision: float
    """Of the rows called +1, those that are; 0 where none is called so."""
    recall: float
    """Of the rows that are +1, those called so; 0 where there is none."""
    f1: float
    """2 x precision x recall / (precision + recall); 0 where both are."""
    majority: float
    """Share of the most frequent class: the accuracy of whoever always says that one."""

    @classmethod
    def of(cls, labels: Vector, margins: Vector) -> "Hits":
        """Of labels and margins (N,) each, whose signs are compared."""
        called, true = margins > 0, labels > 0
        precision, recall, f1 = _rates(called, true)
        share = float(np.mean(true))
        return cls(float(np.mean(called == true)), precision, recall, f1, max(share, 1 - share))

    @classmethod
    def of_classes(cls, labels: Vector, called: npt.NDArray[np.int64]) -> "Hits":
        """Of class numbers (N,) each."""
        there, counts = np.unique(labels, return_counts=True)
        rates = [_rates(called == number, labels == number) for number in there]
        precision, recall, f1 = (float(np.mean(found)) for found in zip(*rates, strict=True))
        return cls(float(np.mean(called == labels)), precision, recall, f1, float(counts.max() / len(labels)))


class Score(NamedTuple):
    """How well weights do on some examples."""

    loss: float
    """Mean of the samples' losses; of more than two classes, the sum of their mean losses."""
    penalty: float
    """lam / 2 * |w|^2."""
    accuracy: float
    precision: float
    recall: float
    f1: float
    majority: float
    """As in `Hits`."""

    @property
    def total(self) -> float:
        """What [Hogwild] calls the loss."""
        return self.loss + self.penalty

    @property
    def named(self) -> dict[str, float]:
        """As a run reports them."""
        hits = {name: value for name, value in self._asdict().items() if name not in ("loss", "penalty")}
        return {"loss": self.total, **hits}


def margins(examples: Examples, weights: Vector, rows: Longs | None = None) -> Vector:
    """x.w of these rows, by default all; above 0 means +1. The last weight is the intercept where there is one more than
    features."""
    examples.check_fits(len(weights))
    rows = examples.within(examples.every() if rows is None else rows)
    found = np.empty(len(rows), f32)
    find_margins(*examples[:3], rows, weights, len(weights) > examples.width, found)
    return found


def score(
    examples: Examples, weights: Vector, objective: Objective, rows: Longs | None = None, classes: int = 2
) -> Score:
    """Loss and hits of the weights on these rows, by default all; weights of more than two `classes` lie one behind the
    other, and a row is of the class with the largest margin. DataError where there is no row."""
    labels = examples.labels if rows is None else examples.labels[rows]
    if not len(labels):
        raise DataError("There are no rows to score; expected at least one.")
    wide = weights.astype(np.float64)
    penalty = objective.lam / 2 * float(wide @ wide)
    if classes == 2:
        found = margins(examples, weights, rows)
        return Score(float(objective.losses(labels, found).mean()), penalty, *Hits.of(labels, found))
    every = np.stack([margins(examples, own, rows) for own in np.split(weights, classes)])
    signs = np.where(labels == np.arange(classes, dtype=f32)[:, None], f32(1), f32(-1))
    loss = float(objective.losses(signs, every).mean(axis=1).sum())
    return Score(loss, penalty, *Hits.of_classes(labels, every.argmax(axis=0)))


def _rates(called: npt.NDArray[np.bool_], true: npt.NDArray[np.bool_]) -> tuple[float, float, float]:
    """Precision, recall and F1."""
    both = int(np.count_nonzero(called & true))
    said, there = int(np.count_nonzero(called)), int(np.count_nonzero(true))
    return both / max(1, said), both / max(1, there), 2 * both / max(1, said + there)
