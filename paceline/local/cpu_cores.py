"""CPU cores of this machine, and each worker's share of them."""

import os

from paceline.core.settings.config import Config


def threads_of(config: Config) -> int:
    """Threads of each worker: its share of the cores."""
    return threads_each(config.workers)


def threads_each(workers: int, given: int | None = None) -> int:
    """The same for this many workers on this machine; `given`: cores that they may use at most."""
    return max(1, min(cores(), given or cores()) // max(1, workers))


def processes_here() -> int:
    """Workers of a script by default: one for each core, four at most."""
    return min(4, cores())


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
