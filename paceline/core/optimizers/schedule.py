"""The learning rate of every step: a shape over the epochs, a factor for the live workers, and a warm-up. An epoch is
counted in examples folded / training examples, so 2.5 is half-way through the third."""

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paceline.core.settings.config import ScheduleConfig

RAMP = 1.0
"""How long a rate takes to rise to that of more workers (epochs)."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Factors of optimizer.lr as a pure function. `epochs` is the run's length; `auto` gives the factor for a number of live
    workers where the config says 'auto' (`effective.py`). AdaScale's gain comes from what is folded, so it is a separate
    factor."""

    config: ScheduleConfig
    epochs: float
    auto: Callable[[int], float] = lambda live: 1.0

    def shape(self, epoch: float) -> float:
        """The factor (0 to 1) of this epoch; past its end a schedule keeps its last value."""
        config = self.config
        done = min(1.0, epoch / (config.epochs or self.epochs))
        match config.name:
            case "step":
                return float(config.gamma ** (epoch // (config.every or math.inf)))
            case "multistep":
                return config.gamma ** bisect_right(config.milestones, epoch)
            case "cosine":
                return config.end + (1 - config.end) * (1 + math.cos(math.pi * done)) / 2
            case "polynomial":
                return config.end + (1 - config.end) * float((1 - done) ** config.power)
            case _:
                return 1.0

    def scale(self, members: int) -> float:
        """The factor for this many live workers: [SHAT] and Goyal et al. scale linearly, [Sharding] inversely."""
        live = max(1, members)
        match self.config.lr_scale:
            case "auto":
                return self.auto(live)
            case "linear":
                return float(live)
            case "sqrt":
                return math.sqrt(live)
            case "inverse":
                return 1 / live
            case "half":
                return max(1.0, live / 2)
            case _:
                return 1.0

    def factor(self, epoch: float, members: int) -> float:
        """What optimizer.lr is multiplied by, for a number of workers that has not changed lately."""
        return self.warmed(epoch, self.scale(members))

    def warmed(self, epoch: float, scale: float) -> float:
        """The factor where the workers count `scale`: start + (scale - start) * epoch / warmup_epochs during the warm-up
        [Goyal et al. 2017; SHAT], times the shape. A warm-up never starts above where it leads."""
        config = self.config
        if epoch < config.warmup_epochs:
            start = self._start(scale)
            scale = start + (scale - start) * epoch / config.warmup_epochs
        return scale * self.shape(epoch)

    def _start(self, scale: float) -> float:
        """Where a warm-up to `scale` starts: by default at the rate of one process where workers make it larger [Goyal et al.
        2017], otherwise at 0."""
        asked = self.config.warmup_start
        if self.config.lr_scale != "auto":
            return min(1.0 if asked is None else asked, scale)
        return (float(scale > 1) if asked is None else asked) * min(1.0, scale)


class LearningRate:
    """The rate that follows the live workers: a change that raises it is ramped linearly over one epoch, one that lowers
    it holds at once, since only a rate too high does harm. Before the first epoch counts there is nothing to ramp from.
    Not thread-safe."""

    def __init__(self, schedule: Schedule, base: float) -> None:
        """`base`: optimizer.lr."""
        self.schedule = schedule
        self.base = base
        self._members: int | None = None
        self._from = 1.0
        self._since = -math.inf

    def members_changed(self, members: int, epoch: float) -> None:
        """Takes note of how many workers are live from this epoch on."""
        before, after = self._scale(epoch), self.schedule.scale(members)
        if members == self._members:
            return
        rises = self._members is not None and epoch > 0 and after > before
        self._from = before if rises else after
        self._since = epoch if rises else -math.inf
        self._members = members

    def at(self, epoch: float) -> float:
        """The learning rate of a step in this epoch; as for one worker until members are known."""
        return self.base * self.schedule.warmed(epoch, self._scale(epoch))

    def state(self) -> dict[str, Any]:
        """What a snapshot must hold: plain JSON values."""
        ramp = None if self._since == -math.inf else [self._from, self._since]
        return {"members": self._members, "ramp": ramp}

    def restore(self, state: dict[str, Any]) -> None:
        """Takes back what `state` gave."""
        self._members = state["members"]
        self._from, self._since = state["ramp"] or (1.0, -math.inf)

    def follow(self, before: "LearningRate") -> None:
        """Goes on with the ramp of a rate before, where both lead to the same."""
        members = before._members
        if members is not None and self.schedule.scale(members) == before.schedule.scale(members):
            self.restore(before.state())

    def _scale(self, epoch: float) -> float:
        target = self.schedule.scale(self._members or 1)
        share = min(1.0, max(0.0, (epoch - self._since) / RAMP))
        return self._from + (target - self._from) * share
