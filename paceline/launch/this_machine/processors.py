"""CPU cores of this machine, each worker's share of them, and the GPUs that processes here see."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from paceline.core.settings.config import Config

VISIBLE = "CUDA_VISIBLE_DEVICES"
DEVICES = Path("/dev")
_DEVICE = re.compile(r"nvidia(\d+)")


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
    return len(own_cores())


def own_cores() -> set[int]:
    """Their numbers."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))


@contextmanager
def kept_to(cores: Collection[int]) -> Iterator[None]:
    """What this thread starts meanwhile runs on these cores only, where the system can do that; on all if there are none."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = own_cores()
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def visible_gpus(environment: Mapping[str, str], devices: Path) -> list[str]:
    """The numbers of GPUs, or what stands for them in the variable. `devices`: /dev."""
    visible = environment.get(VISIBLE)
    if visible is not None:
        return [one.strip() for one in visible.split(",") if one.strip() and one.strip() != "-1"]
    found = (_DEVICE.fullmatch(each.name) for each in devices.glob("nvidia*"))
    return sorted((each[1] for each in found if each), key=int)
