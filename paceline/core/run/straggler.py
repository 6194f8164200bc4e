"""Finds the worker that holds up the others, to show to people who watch a run."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

FACTOR = 1.5
"""A worker this many times slower than the others' median step is a straggler: workers of one machine differ by less."""


@dataclass(frozen=True, slots=True)
class Straggler:
    """The slowest worker, where it is far behind the others."""

    worker: str
    step: float
    """Its time for a mini-batch (seconds)."""
    others: float
    """The median of the others' (seconds)."""
    is_waited_for: bool
    """Whether others have waited longer than this worker."""

    def __str__(self) -> str:
        waits = "; the others wait for it" if self.is_waited_for else ""
        times = f"{1000 * self.step:.3g} ms a step, the others {1000 * self.others:.3g} ms"
        return f"straggler: {self.worker} is {self.step / self.others:.1f} times slower ({times}){waits}"


def straggler(steps: Mapping[str, float], waits: Mapping[str, float]) -> Straggler | None:
    """Finds a worker that is `FACTOR` times slower than the median of the others. `steps`: each member's time for a
    mini-batch (seconds); `waits`: how long each has waited for others so far (seconds)."""
    if len(steps) < 2:
        return None
    slowest = max(steps, key=lambda worker: (steps[worker], worker))
    others = statistics.median(step for worker, step in steps.items() if worker != slowest)
    if not others or steps[slowest] < FACTOR * others:
        return None
    waited = max(waits.get(worker, 0.0) for worker in steps if worker != slowest)
    return Straggler(slowest, steps[slowest], others, waited > waits.get(slowest, 0.0))
