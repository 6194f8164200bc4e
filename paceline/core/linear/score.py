"""How well a linear model does on some rows."""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.core.linear.examples import Examples, Longs
from paceline.core.linear.linear_loops import find_margins
from paceline.core.linear.objective import Objective
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
    """Share of the most frequent class: the accuracy of always predicting that one."""

    @classmethod
    def of(cls, labels: Vector, margins: Vector, own: Vector | None = None) -> "Hits":
        """Of labels and margins (N,) each, whose signs are compared. `own`: what each row counts (N,), as scikit-learn's
        sample_weight; by default all alike."""
        called, true = margins > 0, labels > 0
        precision, recall, f1 = _rates(called, true, own)
        share = _mean(true, own)
        return cls(_mean(called == true, own), precision, recall, f1, max(share, 1 - share))

    @classmethod
    def of_classes(cls, labels: Vector, called: npt.NDArray[np.int64], own: Vector | None = None) -> "Hits":
        """Of class numbers (N,) each. `own`: as for `of`."""
        there = np.unique(labels)
        rates = [_rates(called == number, labels == number, own) for number in there]
        precision, recall, f1 = (float(np.mean(found)) for found in zip(*rates, strict=True))
        most = max(_mean(labels == number, own) for number in there)
        return cls(_mean(called == labels, own), precision, recall, f1, most)


class Score(NamedTuple):
    """How well weights do on some examples."""

    loss: float
    """Mean of the samples' losses, by their weights; of more than two classes those of `Objective.losses_of_classes`."""
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
    examples: Examples,
    weights: Vector,
    objective: Objective,
    rows: Longs | None = None,
    classes: int = 2,
    own: Vector | None = None,
) -> Score:
    """Loss and hits of the weights on these rows, by default all; weights of more than two `classes` lie one behind the
    other, and a row is of the class with the largest margin. `own`: what each of all rows counts (N,), by default alike.
    DataError where there is no row, or none that counts."""
    labels = examples.labels if rows is None else examples.labels[rows]
    if own is not None and rows is not None:
        own = own[rows]
    if not len(labels):
        raise DataError("There are no rows to score; expected at least one row.")
    if own is not None and not own.any():
        raise DataError(f"The weights of all {len(own):,} rows to score are 0; expected at least one above 0.")
    wide = weights.astype(np.float64)
    penalty = objective.lam / 2 * float(wide @ wide)
    if classes == 2:
        found = margins(examples, weights, rows)
        return Score(_mean(objective.losses(labels, found), own), penalty, *Hits.of(labels, found, own))
    every = np.stack([margins(examples, each, rows) for each in np.split(weights, classes)])
    loss = _mean(objective.losses_of_classes(labels, every), own)
    return Score(loss, penalty, *Hits.of_classes(labels, every.argmax(axis=0), own))


def _mean(values: npt.NDArray[Any], own: Vector | None) -> float:
    """By weights, where there are some."""
    return float(np.mean(values) if own is None else np.average(values, weights=own.astype(np.float64)))


def _rates(
    called: npt.NDArray[np.bool_], true: npt.NDArray[np.bool_], own: Vector | None
) -> tuple[float, float, float]:
    """Precision, recall and F1."""
    both, said, there = (
        float(np.count_nonzero(rows) if own is None else own[rows].sum(dtype=np.float64))
        for rows in (called & true, called, true)
    )
    return both / (said or 1), both / (there or 1), 2 * both / ((said + there) or 1)
