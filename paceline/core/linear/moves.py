"""What steps have moved since somebody last asked, and which features the rows of these steps have."""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from paceline.core.compiled import check_lengths
from paceline.core.linear.examples import Examples, Features, Longs, f32
from paceline.core.linear.linear_loops import add_support, copy_at, rebase
from paceline.core.values import Places, Sparse, Vector


class Support:
    """Which features some rows have."""

    def __init__(self, width: int) -> None:
        self.has = np.zeros(width, np.bool_)
        self._found = np.empty(width, np.uint32)
        self._count = 0

    def add(self, examples: Examples, rows: Longs, intercept: bool) -> Features:
        """Notes the rows' features, and the intercept. Returns those that are new, in no order."""
        before = self._count
        self._count = int(add_support(*examples[:3], rows, self.has, self._found, before))
        if intercept and len(rows) and not self.has[-1]:
            self.has[-1] = True
            self._found[self._count] = len(self.has) - 1
            self._count += 1
        return self._found[before : self._count]

    def take(self) -> Places:
        """All features noted; then there are none."""
        found = np.sort(self._found[: self._count]).astype(np.int64)
        self.has[found] = False
        self._count = 0
        return found


class Moves:
    """Of weights (classes, D) that rows step together. Not thread-safe."""

    def __init__(self, weights: Vector) -> None:
        self._weights = weights
        self._before = np.empty(weights.shape, f32)
        self._support = Support(weights.shape[1])

    def begin(self, examples: Examples, rows: Longs, intercept: bool) -> None:
        """These rows are about to step."""
        new = self._support.add(examples, rows, intercept)
        for weights, before in zip(self._weights, self._before, strict=True):
            copy_at(new, weights, before)

    def take(self, shares: Vector | None) -> Sparse:
        """What has moved, by `shares` (D,) if given, without what did not change; places are those in the flat weights."""
        features = self._support.take()
        moved = self._weights[:, features] - self._before[:, features]
        if shares is not None:
            moved /= shares[features]
        return sparse_of_classes(features, moved, self._weights.shape[1])

    def rebase(self, places: Places, values: Vector) -> None:
        """Takes over weights from outside, and puts on top what `take` has not handed out yet. Places rise where there are
        several classes; that they are those of weights is not checked."""
        check_lengths(places, values)
        classes, each = self._weights.shape
        if classes == 1:
            rebase(places, values, self._support.has, self._before[0], self._weights[0])
            return
        rows = zip(by_class(places, values, classes, each), self._before, self._weights, strict=True)
        for (features, given), before, weights in rows:
            rebase(features, given, self._support.has, before, weights)


def by_class(places: Places, values: Vector, classes: int, each: int) -> Iterator[tuple[Places, Vector]]:
    """The features and values of each class in turn; places rise. `each`: a class's weights."""
    cuts = np.searchsorted(places, np.arange(classes + 1) * each)
    for number, (first, end) in enumerate(pairwise(cuts)):
        yield places[first:end] - number * each, values[first:end]


def sparse_of_classes(features: Places, values: Vector, each: int) -> Sparse:
    """As `sparse`, of values (classes, features) of the same features in each class; `each`: a class's weights."""
    places = (features + each * np.arange(len(values))[:, None]).reshape(-1)
    return sparse(places, values.reshape(-1), len(values) * each)


def sparse(places: Places, values: Vector, width: int) -> Sparse:
    """An update of these places, without those whose value is 0."""
    changed = values != 0
    return Sparse(places, values, width) if changed.all() else Sparse(places[changed], values[changed], width)
