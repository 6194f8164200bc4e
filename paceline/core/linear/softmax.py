"""Multinomial logistic regression: the weights of several classes, of which each row steps all [Böhning 1992]."""

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.linear.examples import Examples, Longs, f32
from paceline.core.linear.model import Fit
from paceline.core.linear.moves import Moves, Support, sparse_of_classes
from paceline.core.linear.objective import Objective
from paceline.core.linear.softmax_loops import add_softmax_gradient, step_softmax_batches, step_softmax_fitted
from paceline.core.values import Places, Sparse, Vector


class Softmax:
    """As `OneVsRest`; the slope of a row at class c is the chance that softmax gives c, less 1 where c is its class."""

    def __init__(
        self,
        weights: Vector,
        classes: int,
        objective: Objective,
        decays: Vector,
        tracks: bool = False,
        fit: Fit | None = None,
    ) -> None:
        self.weights = weights
        self._rows = weights.reshape(classes, -1)
        each = self._rows.shape[1]
        if len(decays) not in (1, each):
            raise ConfigError(
                f"There are {len(decays):,} decays for {each:,} weights of a class; expected one decay, or one for each."
            )
        self._decays = decays
        self._is_mean = objective.reduce == "mean"
        self._fit = fit
        self._shares: Vector | None = None
        self._rates = np.empty(0, f32) if fit is None else fit.rates
        self._chances = np.empty(classes)
        self._sums = np.zeros(self._rows.shape, f32)
        self._batch = Support(each)
        self._moved = Moves(self._rows) if tracks else None

    def join(self, shares: Vector | None) -> None:
        """As in `LinearModel`."""
        if self._fit is not None:
            self._shares = shares
            self._rates = self._fit.rates if shares is None else self._fit.rates * shares

    def gradient(self, examples: Examples, rows: Longs) -> Sparse:
        """As in `LinearModel`; labels are class numbers."""
        each = self._rows.shape[1]
        examples.check_fits(each)
        rows, intercept = examples.within(rows), each > examples.width
        self._batch.add(examples, rows, intercept)
        own = (self._rows, self._decays, intercept, self._chances, self._sums)
        add_softmax_gradient(*examples[:5], rows, *own)
        features = self._batch.take()
        values = self._sums[:, features]
        self._sums[:, features] = 0
        if self._is_mean:
            values /= f32(max(1, len(rows)))
        return sparse_of_classes(features, values, each)

    def step(self, examples: Examples, rows: Longs, batch_size: int, lr: float) -> None:
        """As in `LinearModel`; labels are class numbers."""
        examples.check_fits(self._rows.shape[1])
        rows = examples.within(rows)
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; expected 1 or more.")
        intercept = self._rows.shape[1] > examples.width
        if self._moved is not None:
            self._moved.begin(examples, rows, intercept)
        given, own = (*examples[:5], rows), (self._rows, self._decays)
        if self._fit is not None:
            step_softmax_fitted(*given, lr / self._fit.length, *own, self._rates, intercept, self._chances)
        else:
            scratch = self._chances, self._sums
            step_softmax_batches(*given, batch_size, f32(lr), *own, intercept, self._is_mean, *scratch)

    def moves(self) -> Sparse:
        """As in `LinearModel`."""
        return self._tracked().take(self._shares)

    def rebase(self, places: Places, values: Vector) -> None:
        """As in `LinearModel`; places rise."""
        self._tracked().rebase(places, values)

    def _tracked(self) -> Moves:
        assert self._moved is not None, "a model that tells its moves needs tracks=True"
        return self._moved
