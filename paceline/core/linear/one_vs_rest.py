"""Linear models of several classes: for each class weights that tell it from all others, trained in one go; and which model a
number of classes and a loss need."""

from collections.abc import Sequence

import numpy as np

from paceline.core.linear.examples import Examples, Longs
from paceline.core.linear.model import Fit, LinearModel
from paceline.core.linear.moves import by_class
from paceline.core.linear.objective import Objective
from paceline.core.linear.softmax import Softmax
from paceline.core.values import Places, Sparse, Vector


class OneVsRest:
    """As `LinearModel`; the classes' weights lie one behind the other in one array. Not thread-safe."""

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
        self._each = len(weights) // classes
        self._models = [
            LinearModel(own, objective, decays, tracks, fit) for own in weights.reshape(classes, self._each)
        ]
        self._of: Examples | None = None
        self._seen: list[Examples] = []

    def join(self, shares: Vector | None) -> None:
        """As in `LinearModel`."""
        for model in self._models:
            model.join(shares)

    def gradient(self, examples: Examples, rows: Longs) -> Sparse:
        """As in `LinearModel`, of every class; labels are class numbers."""
        seen = self._against(examples)
        return self._joined([model.gradient(own, rows) for model, own in zip(self._models, seen, strict=True)])

    def step(self, examples: Examples, rows: Longs, batch_size: int, lr: float) -> None:
        """As in `LinearModel`, for every class in turn; labels are class numbers."""
        for model, own in zip(self._models, self._against(examples), strict=True):
            model.step(own, rows, batch_size, lr)

    def moves(self) -> Sparse:
        """As in `LinearModel`."""
        return self._joined([model.moves() for model in self._models])

    def _against(self, examples: Examples) -> list[Examples]:
        """The examples as each class sees them, made once."""
        if self._of is not examples:
            self._of = examples
            self._seen = [examples.against(number) for number in range(len(self._models))]
        return self._seen

    def _joined(self, found: Sequence[Sparse]) -> Sparse:
        """One update, of those of all classes."""
        places = np.concatenate([one.places + number * self._each for number, one in enumerate(found)])
        return Sparse(places, np.concatenate([one.values for one in found]), len(self.weights))

    def rebase(self, places: Places, values: Vector) -> None:
        """As in `LinearModel`; places rise."""
        parts = by_class(places, values, len(self._models), self._each)
        for model, (features, given) in zip(self._models, parts, strict=True):
            model.rebase(features, given)


AnyModel = LinearModel | OneVsRest | Softmax


def linear_model(
    weights: Vector, classes: int, objective: Objective, decays: Vector, tracks: bool = False, fit: Fit | None = None
) -> AnyModel:
    """One model for two classes; for more all classes together (softmax), or each against the rest."""
    if classes == 2:
        return LinearModel(weights, objective, decays, tracks, fit)
    kind = Softmax if objective.loss == "softmax" else OneVsRest
    return kind(weights, classes, objective, decays, tracks, fit)
