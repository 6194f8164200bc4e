"""Kills one of Spark's executors in the middle of a training, and says what that changed in the model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event, Thread
from typing import Any

import numpy as np
import psutil

from paceline.core.errors import PacelineError

BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
"""The main class of an executor's process."""
EVERY = 0.005
"""Seconds between two looks at Spark's jobs."""
PATIENCE = 120.0
"""Seconds that a new executor has to start."""


@dataclass(frozen=True, slots=True)
class Kill:
    """`job` of `jobs` ran when the executor died. `apart`: by how much `numbers` of the model differ at most from those of the
    training without the kill, divided by the largest of them; None where they are another number of numbers."""

    job: int
    jobs: int
    numbers: int
    apart: float | None

    def __str__(self) -> str:
        said = "is another" if self.apart is None else f"differs by at most {self.apart:.0e} of its largest number"
        return f"an executor was killed in job {self.job} of {self.jobs}; the model of {self.numbers:,} numbers {said}"


def comparable(first: Sequence[float], second: Sequence[float]) -> float | None:
    """The largest difference of two models' numbers, divided by the largest number; None where there are not as many."""
    if len(first) != len(second):
        return None
    ours, other = np.asarray(first), np.asarray(second)
    return float(np.abs(ours - other).max() / (np.abs(ours).max() or 1.0))


def jobs_of(spark: Any, group: str, fit: Callable[[], Any]) -> tuple[Any, int]:
    """What `fit` gives, and how many of Spark's jobs that took."""
    context = spark.sparkContext
    context.setJobGroup(group, group)
    fitted = fit()
    return fitted, len(context.statusTracker().getJobIdsForGroup(group))


class Killer:
    """Kills one executor of this process's session once more than half of a training's jobs have begun."""

    def __init__(self, spark: Any, group: str, jobs: int, executors: int) -> None:
        """`jobs`: of this training when nobody is killed. PacelineError where not as many executors come."""
        self._tracker, self._group, self._jobs = spark.sparkContext.statusTracker(), group, jobs
        self._over = Event()
        self._thread = Thread(target=self._kill, daemon=True)
        self.job = 0
        """In which it was killed; 0: in none."""
        _wait_for(executors)

    def __enter__(self) -> "Killer":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _kill(self) -> None:
        while not self._over.wait(EVERY):
            begun = len(self._tracker.getJobIdsForGroup(self._group))
            if begun > self._jobs // 2 and (running := executors()):
                running[0].kill()
                self.job = begun
                return


def executors() -> list[psutil.Process]:
    """The executors that this process's session has started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if BACKEND in process.cmdline():
                found.append(process)
        except psutil.Error:  # it has just ended
            continue
    return found


def _wait_for(count: int) -> None:
    until = time.monotonic() + PATIENCE
    while len(executors()) < count:
        if time.monotonic() > until:
            raise PacelineError(f"{len(executors())} of {count} executors came in {PATIENCE:.0f} s.")
        time.sleep(0.1)
