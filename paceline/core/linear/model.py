"""A linear model over sparse rows, stepped in place: its gradients, and what a worker has moved since it was last asked.

The loops are compiled and release the GIL. Weights are float32 and margins are summed in float64, always in the same
order, so that the same rows in the same order give the same bits. Threads that step one array of weights at the same
time may lose each other's writes, never tear one [Niu et al. 2011]."""

from typing import NamedTuple, Self

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.linear.examples import Examples as Examples
from paceline.core.linear.examples import Longs as Longs
from paceline.core.linear.examples import f32
from paceline.core.linear.linear_loops import (
    LOSSES,
    add_gradient,
    step_batches,
    step_fitted,
    step_singly,
)
from paceline.core.linear.moves import Moves, Support, sparse
from paceline.core.linear.objective import Objective
from paceline.core.linear.score import margins as margins
from paceline.core.linear.score import score as score
from paceline.core.values import Places, Sparse, Vector

_TINY = 1e-30
"""Mean squares below this are taken for it, so that rates stay within float32."""


class Fit(NamedTuple):
    """What makes one learning rate right for any rows: weight k steps at the rate lr x rates_k / length [ours; after Ross,
    Mineiro, Langford 2013]. So features may have any scale, and rows any length."""

    rates: Vector
    """1 / the mean square of the feature's values that are not 0; 0 for a feature that no row has (one for each weight)."""
    length: float
    """Mean over the rows of cost x x.x, each feature at its rate."""
    presence: Vector
    """Share of the rows that have the feature; 1 for the intercept (one for each weight)."""

    @classmethod
    def of(cls, examples: Examples, intercept: bool) -> Self:
        """For these rows, read once. An intercept has the rate 1."""
        counts = np.bincount(examples.indices, examples.values != 0, examples.width)
        squares = np.bincount(examples.indices, examples.values.astype(np.float64) ** 2, examples.width)
        rates = np.where(counts > 0, counts / np.maximum(squares, _TINY), 0)
        length = float(counts.sum()) / max(1, len(examples)) + intercept
        if len(examples.costs) > 1:
            owner = np.repeat(examples.every(), np.diff(examples.starts))
            each = np.bincount(owner, examples.values.astype(np.float64) ** 2 * rates[examples.indices], len(examples))
            length = float(np.mean(examples.costs * (each + intercept)))
        presence = counts / max(1, len(examples))
        own, there = (np.append(found, [1.0] * intercept).astype(f32) for found in (rates, presence))
        return cls(own, length or 1.0, there)

    def shares(self, members: int, rows: int) -> Vector:
        """For each weight that is in one member's push: the number of members whose pushes are expected to have it, where each
        push is made of `rows` rows."""
        return f32(1) + f32(members - 1) * (f32(1) - (f32(1) - self.presence) ** rows)


class LinearModel:
    """Weights, one for each feature and behind them an intercept if there is one more, stepped in place. With `tracks` it
    also knows what its steps have moved. Several models may share one array of weights, each in its own thread; a model
    itself is not thread-safe."""

    def __init__(
        self, weights: Vector, objective: Objective, decays: Vector, tracks: bool = False, fit: Fit | None = None
    ) -> None:
        """`decays`: see `Objective.decays`; `fit`: for fitted steps. Memory follows D, in pages that are taken only when they
        are touched."""
        if len(decays) not in (1, len(weights)):
            raise ConfigError(
                f"There are {len(decays):,} decays for {len(weights):,} weights; expected one decay, or one for "
                "each weight."
            )
        self.weights = weights
        self._decays = decays
        self._loss = LOSSES[objective.loss]
        self._is_mean = objective.reduce == "mean"
        self._fit = fit
        self._shares: Vector | None = None
        self._rates = np.empty(0, f32) if fit is None else fit.rates
        self._sums = np.zeros(len(weights), f32)
        self._batch = Support(len(weights))
        self._moved = Moves(weights[None]) if tracks else None

    def gradient(self, examples: Examples, rows: Longs) -> Sparse:
        """The gradient of one batch, of features whose value is not 0; sum or mean as the objective says."""
        rows = self._checked(examples, rows)
        self._batch.add(examples, rows, self._has_intercept(examples))
        own = (self.weights, self._decays, self._loss, self._has_intercept(examples))
        add_gradient(*examples[:5], rows, *own, self._sums)
        places = self._batch.take()
        values = self._sums[places]
        self._sums[places] = 0
        if self._is_mean:
            values /= f32(max(1, len(rows)))
        return sparse(places, values, len(self.weights))

    def step(self, examples: Examples, rows: Longs, batch_size: int, lr: float) -> None:
        """One step w <- w - lr * gradient for every `batch_size` rows, in their order; the last batch may be smaller. Fitted
        steps go row by row."""
        rows = self._checked(examples, rows)
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; expected 1 or more.")
        if self._moved is not None:
            self._moved.begin(examples, rows, self._has_intercept(examples))
        given, how = (*examples[:5], rows), (self._loss, self._has_intercept(examples))
        if self._fit is not None:
            step_fitted(*given, lr / self._fit.length, self.weights, self._decays, self._rates, *how)
        elif batch_size == 1:
            step_singly(*given, f32(lr), self.weights, self._decays, *how)
        else:
            step_batches(*given, batch_size, f32(lr), self.weights, self._decays, *how, self._is_mean, self._sums)

    def join(self, shares: Vector | None) -> None:
        """Other members train at the same time, each on its own rows: a fitted step goes `shares` (of `Fit`) times as far, and
        `moves` returns that part of it, so that the sum over all members is as stable as the steps of one. None: it is alone
        [Ma et al. 2015, adding with sigma' = K; Richtarik, Takac 2016 for features that few rows have]."""
        if self._fit is not None:
            self._shares = shares
            self._rates = self._fit.rates if shares is None else self._fit.rates * shares

    def moves(self) -> Sparse:
        """What the steps since the last call have added to the weights; coordinates that did not change are left out.
        Weights that came in meanwhile (`rebase`) don't count."""
        return self._tracked().take(self._shares)

    def rebase(self, places: Places, values: Vector) -> None:
        """Takes over weights of these features from outside, and puts on top what `moves` has not handed out yet.
        That they are features of the model is not checked."""
        self._tracked().rebase(places, values)

    def _tracked(self) -> Moves:
        assert self._moved is not None, "a model that tells its moves needs tracks=True"
        return self._moved

    def _checked(self, examples: Examples, rows: Longs) -> Longs:
        """The rows as the loops take them; compiled loops would read past the end."""
        examples.check_fits(len(self.weights))
        return examples.within(rows)

    def _has_intercept(self, examples: Examples) -> bool:
        return len(self.weights) > examples.width
