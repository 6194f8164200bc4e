"""Finds workers that are slower than the others; marks the slowest of them, to show to people who watch a run."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

FACTOR = 1.5
"""A worker whose steps take this many times as long as the median is slow: workers of one machine differ by less."""


def slow_workers(steps: Mapping[str, float], factor: float = FACTOR) -> list[str]:
    """Those that take `factor` times as long as the median, of an even number the lower one of the two in the middle.
    `steps`: each worker's time for a step (seconds)."""
    usual = statistics.median_low(steps.values()) if steps else 0.0
    return [worker for worker, step in steps.items() if step >= factor * usual > 0]


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
    """The slowest of the slow workers; None where there is none. `steps`: each member's time to compute a mini-batch
    (seconds); `waits`: how long each has waited for others so far (seconds)."""
    slow = slow_workers(steps)
    if not slow:
        return None
    slowest = max(slow, key=lambda worker: (steps[worker], worker))
    others = statistics.median(step for worker, step in steps.items() if worker != slowest)
    waited = max(waits.get(worker, 0.0) for worker in steps if worker != slowest)
    return Straggler(slowest, steps[slowest], others, waited > waits.get(slowest, 0.0))
