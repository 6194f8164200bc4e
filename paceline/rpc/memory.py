"""Reads how much memory there is, and whether the kernel killed a process for lack of it."""

import contextlib
from pathlib import Path

import psutil


def memory_limit() -> int:
    """Bytes this machine, or the container, has for all processes."""
    limit = int(psutil.virtual_memory().total)
    for file in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limit = min(limit, int(Path(file).read_text()))
        except (OSError, ValueError):  # not there, or 'max'
            continue
    return limit


def retained_bytes(asked: int | None, has_feedback: bool) -> int:
    """Most bytes of pushes that a worker keeps for servers that come back without them. `asked`: checkpoint.retain;
    `has_feedback`: what is computed again lacks what earlier pushes left out, so they are kept anyway."""
    usual = min(1 << 30, memory_limit() // 10)
    return usual if asked is None else max(asked, usual) if has_feedback else asked


def kernel_kills() -> int | None:
    """How many processes the kernel has killed here because memory ran out; None where it does not tell."""
    found = []
    for file in ("/sys/fs/cgroup/memory.events", "/proc/vmstat"):
        with contextlib.suppress(OSError, ValueError):
            lines = (line.split() for line in Path(file).read_text().splitlines())
            found += [int(count) for name, count in lines if name == "oom_kill"]
    return sum(found) if found else None
