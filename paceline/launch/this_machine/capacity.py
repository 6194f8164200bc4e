"""Says before a run when this machine has too few cores or too little memory for its processes."""

import sys

import psutil

from paceline.base.terminal import say
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.launch.this_machine.processors import cores
from paceline.rpc.memory import memory_limit

MOST_PER_CORE = 16
"""Processes that the kernel lets take turns on a core."""
SHARED, FORKED = 500 << 20, 30 << 20
"""Memory that a run takes once (what its processes are forked from), and for each of them (bytes; measured with the task
digits, so without a model or data of any size, or what a script of the user's own imports)."""
LAUNCHING = 4
"""Processes of each of several runs besides: its launcher, and three that fork. Such runs are forked from one process, too:
four of digits with a worker and a server each took 1,194 MiB; this asks for 1,340."""


def refuse_too_many(config: Config, yes: bool, how: str = "--yes", runs: int = 1) -> None:
    """Asks on a terminal whether to go on where the processes of this many runs at a time are too many for this machine;
    UsageError where there is no one to ask, or they say no. `how` tells the other way to agree."""
    sentence = too_many(config, cores(), free_memory(), runs)
    if sentence is None or yes:
        return
    if sys.stdin.isatty() and sys.stderr.isatty():
        import typer

        say(sentence, sys.stderr)
        try:
            if typer.confirm("Go on?", err=True):
                return
        except typer.Abort:  # Ctrl-C, Ctrl-D
            raise KeyboardInterrupt from None
    raise UsageError(f"{sentence} Use fewer workers (-w), or start anyway with {how}.")


def too_many(config: Config, cores: int, free: int, runs: int = 1) -> str | None:
    """In words, where the processes are more than the cores or the free memory (bytes) can bear."""
    processes = runs * (config.workers + config.server_processes + 1)
    is_forked = runs > 1 and sys.platform == "linux"
    once, launching = (1, runs * LAUNCHING) if is_forked else (runs, 0)
    need = once * SHARED + (processes + launching) * FORKED
    if processes <= MOST_PER_CORE * cores and need <= free:
        return None
    side = f" in each of {runs} runs side by side" if runs > 1 else ""
    return (
        f"{config.workers:,} workers{side} make {processes:,} processes, on {cores} core{'s' * (cores > 1)}; they need "
        f"{_gib(need)} of memory at least, and {_gib(free)} is free."
    )


def free_memory() -> int:
    """Memory that new processes can have (bytes)."""
    return min(int(psutil.virtual_memory().available), memory_limit())


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
