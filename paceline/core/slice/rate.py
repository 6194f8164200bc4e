"""Computes the learning rate of one slice from schedule, number of members and AdaScale's gain: how much more a step on many
workers' mean gradient is worth than a step on one worker's."""

import math
from typing import Any

from paceline.core.optimizers.schedule import LearningRate, Schedule
from paceline.core.policies.policy import Gathered


class Rate:
    """Depends only on the examples that the slice has counted. So all slices have the same rate without messages, and
    lock-step training gives the same bits. Not thread-safe."""

    def __init__(self, schedule: Schedule, base: float, factor: float = 1.0) -> None:
        """`base`: the optimizer's rate; `factor`: what the schedule's rate is multiplied by (ratio)."""
        self._factor = factor
        self._adascale = AdaScale() if schedule.config.lr_scale == "adascale" else None
        self._lr = LearningRate(schedule, base)
        self._ahead = 0.0
        """Examples that AdaScale's schedule is ahead of those counted; negative while it is behind."""
        self._epoch = 0.0

    def follow(self, before: "Rate") -> None:
        """Goes on where the rate under the policy before was: in the midst of a ramp, or ahead of the examples."""
        self._lr.follow(before._lr)
        self._epoch = before._epoch
        if self._adascale is not None:
            self._ahead = before._ahead

    @property
    def needs_squares(self) -> bool:
        """Whether `gain` will be asked for."""
        return self._adascale is not None

    def members(self, count: int) -> None:
        """Takes the new number of members."""
        if count:
            self._lr.members_changed(count, self._epoch)

    def at(self, examples: int, per_epoch: int) -> float:
        """The rate after this many counted examples; `per_epoch` 0: not known yet."""
        self._epoch = (examples + self._ahead) / per_epoch if per_epoch else 0.0
        return self._factor * self._lr.at(self._epoch)

    def gain(self, gathered: Gathered, squares: float, norm: float) -> float:
        """AdaScale's factor for this fold, by which the schedule advances instead of by all its examples. `norm`: the sum's."""
        assert self._adascale is not None
        found = self._adascale.observe(squares, (norm * gathered.scale) ** 2, gathered.pushes)
        self._ahead += (found / gathered.pushes - 1) * gathered.examples
        return found

    def state(self) -> dict[str, Any]:
        """The state for a snapshot, as plain JSON values."""
        adascale = self._adascale.state() if self._adascale else None
        return {"lr": self._lr.state(), "adascale": adascale, "ahead": self._ahead, "epoch": self._epoch}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""
        self._lr.restore(state["lr"])
        self._ahead = state["ahead"]
        self._epoch = state["epoch"]
        if self._adascale and state["adascale"] is not None:
            self._adascale.restore(state["adascale"])


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
