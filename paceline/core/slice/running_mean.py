"""Keeps the mean of a slice's versions, at a cost proportional to what each fold changes."""

import numpy as np

from paceline.core.values import Places, Vector


class RunningMean:
    """The mean of `count` versions. Every change lags behind by the versions before it: with d_j the change of fold j,
    mean = w - sum of (j - 1) d_j / count [Polyak, Juditsky 1992; the form for sparse steps: Bottou, SGD tricks, 2012]. In
    float32, because a term stands to the sum as the change to its weight, so it loses no more digits than the weights do.
    Not thread-safe."""

    def __init__(self, length: int, start: float) -> None:
        """`start`: the epochs after which it begins."""
        self._start = start
        self.count = 0
        self.lag = np.zeros(length, np.float32)

    def goes_on(self, epoch: float) -> bool:
        """Whether the version made now counts; once one has, all later ones do."""
        return self.count > 0 or epoch >= self._start

    def note(self, places: Places, change: Vector) -> None:
        """Adds a version, which differs from the one before by `change` at these places."""
        if self.count:
            self.lag[places] += np.float32(self.count) * change
        self.count += 1

    def of(self, weights: Vector) -> Vector:
        """The mean, in a new array; `weights`: the newest version, which is the mean while none is counted."""
        mean: Vector = self.lag / np.float32(max(1, self.count))
        np.subtract(weights, mean, out=mean)
        return mean
