"""AdaScale: how much more a step on many workers' mean gradient is worth than a step on one worker's."""

import math
from typing import Any


class AdaScale:
    """The gain r = (v + m) / (v / S + m), 1 to S, that the learning rate is multiplied by and the schedule advances by
    [Johnson et al. 2020]. v is the variance of one worker's gradient (summed over the elements), m the
    squared norm of the true one; both are moving averages of their unbiased estimates. Sums of squares of one slice are
    enough; then the gain is that slice's. Not thread-safe.

    An example: S = 2, g = [1, 1] and [1, -1]: the squares sum to 4 and the mean is [1, 0], so v = (4 - 2 * 1) / 1 = 2,
    m = 1 - 2 / 2 = 0, r = 2. With [2, 0] and [1, 0]: v = 5 - 2 * 2.25 = 0.5, m = 2.25 - 0.25 = 2, r = 2.5 / 2.25."""

    def __init__(self) -> None:
        # Both averages start at 0 and grow alike; what they lack at first cancels in the gain.
        self._variance = 0.0
        self._square = 0.0

    def observe(self, sum_of_squared_norms: float, squared_norm_of_mean: float, pushes: int) -> float:
        """The gain of a fold of `pushes` gradients (those with examples), of which it takes note before. One gradient
        tells nothing of the variance, and a value that is not finite nothing at all: both leave the averages alone."""
        if pushes > 1 and math.isfinite(sum_of_squared_norms) and math.isfinite(squared_norm_of_mean):
            variance = max(0.0, (sum_of_squared_norms - pushes * squared_norm_of_mean) / (pushes - 1))
            square = squared_norm_of_mean - variance / pushes
            keep = max(0.0, 1 - pushes / 1000)  # the paper's: many gradients need less memory
            self._variance += (1 - keep) * (variance - self._variance)
            self._square += (1 - keep) * (square - self._square)
        return self.gain(pushes)

    def gain(self, pushes: int) -> float:
        """The gain of a fold of `pushes` gradients, estimated from the folds so far; 1 before the first."""
        variance, square = self._variance, max(0.0, self._square)
        below = variance / max(1, pushes) + square
        return min(float(max(1, pushes)), max(1.0, (variance + square) / below)) if below > 0 else 1.0

    def state(self) -> dict[str, Any]:
        """What a snapshot must hold: plain JSON values."""
        return {"variance": self._variance, "square": self._square}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        self._variance = state["variance"]
        self._square = state["square"]
