"""What goes wrong in several steps in a row, for the chief's warnings (paceline/core/chief/warnings.py)."""

import math
from collections.abc import Mapping

from paceline.worker.training.step_result import Step

_FIRST = 3
"""Steps that tell what losses and gradients begin with."""
_LOSS, _GRADIENT = 1e3, 1e6
"""Times what they begin with beyond which losses, or the largest elements of gradients, have exploded."""
_SMALL = 1e-3
"""What begins below this counts as this: noise is no explosion."""


class Row:
    """Counts steps in a row in which something happened."""

    def __init__(self) -> None:
        self.now = self.longest = 0

    def note(self, happened: bool) -> None:
        """One step more."""
        self.now = self.now + 1 if happened else 0
        self.longest = max(self.longest, self.now)


class Rows:
    """Of one worker. Not thread-safe."""

    def __init__(self) -> None:
        self.unusable = Row()
        self.exploding = Row()
        self.dropped = Row()
        self._losses: list[float] = []
        self._sizes: list[float] = []
        self._last = math.nan
        """Loss of the last step that exploded."""

    def stepped(self, step: Step) -> None:
        """A mini-batch was computed."""
        if step.searches:
            return
        self.unusable.note(not step.finite)
        if not step.finite:
            return
        is_out = _beyond(self._losses, step.loss, _LOSS) or _beyond(self._sizes, step.size, _GRADIENT)
        self.exploding.note(is_out)
        if is_out:
            self._last = step.loss

    def go_back(self) -> None:
        """The weights of these steps are in the model no more."""
        self.unusable.now = self.exploding.now = 0

    def figures(self) -> Mapping[str, float]:
        """What was more than nothing, for the heartbeat."""
        rows = {"unusable": self.unusable, "exploding": self.exploding, "dropped": self.dropped}
        found: dict[str, float] = {}
        for name, row in rows.items():
            if row.longest:
                found |= {f"{name}_row": row.now, f"{name}_longest": row.longest}
        if self.exploding.longest and self._losses:
            found |= {"first_loss": max(self._losses), "exploding_loss": self._last}
        return found


def _beyond(first: list[float], value: float, times: float) -> bool:
    """Whether `value` is more than `times` the first ones, which it notes. False if the value is not known."""
    if not math.isfinite(value):
        return False
    is_out = bool(first) and abs(value) > times * max(_SMALL, *first)
    if len(first) < _FIRST and not is_out:
        first.append(abs(value))
    return is_out
