"""Computes the learning rate of one slice from schedule, number of members and AdaScale's gain."""

from typing import Any

from paceline.core.optimizers.adascale import AdaScale
from paceline.core.optimizers.clip import l2_norm
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

    def gain(self, gathered: Gathered, squares: float) -> float:
        """AdaScale's factor for this fold, by which the schedule advances instead of by all its examples."""
        assert self._adascale is not None
        mean = l2_norm(gathered.total) * gathered.scale
        found = self._adascale.observe(squares, mean**2, gathered.pushes)
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
