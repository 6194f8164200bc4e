"""Fair measuring on a noisy machine: contenders take turns, one alive at a time, round after round.

A contender is a command that runs its own processes, prints {"iteration": k, "seconds": s} for each iteration and then
one line with its costs, and proves its result itself (a wrong one ends it with an error). The first exchanges of every
start are dropped. Every start and the whole run are bounded in time; what was not measured is kept with its reason.
"""

import json
import os
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.contender import WARM_UP
from benchmarks.contenders import Entry
from benchmarks.environments import NoEnvironment, python_of
from paceline.core.errors import PacelineError, UsageError

REPOSITORY = Path(__file__).parent.parent


class StartFailed(PacelineError):
    """One start of a contender gave no measurement."""


@dataclass
class Measured:
    """All that one entry gave: a figure for each counted iteration, costs for each start, or why there is none."""

    entry: Entry
    seconds: list[float] = field(default_factory=list)
    costs: dict[str, list[float]] = field(default_factory=dict)
    """Of the last line: cpu_seconds, cpu_seconds_per_gb, minor_faults_per_gb."""
    failure: str = ""

    @property
    def median(self) -> float:
        """Seconds of the middle iteration."""
        return statistics.median(self.seconds)

    @property
    def best(self) -> float:
        """Seconds of the fastest iteration."""
        return min(self.seconds)

    def cost(self, name: str) -> float | None:
        """The median over starts of one of the costs, None where the contender does not tell it."""
        return statistics.median(self.costs[name]) if self.costs.get(name) else None


@dataclass(frozen=True)
class Limits:
    """How long to measure."""

    rounds: int = 3
    iterations: int = 7
    start: float = 120.0
    """A start that takes longer is ended and counts as failed (seconds)."""
    total: float = 1200.0
    """No start begins after this (seconds)."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.iterations <= WARM_UP:
            raise UsageError(
                f"{self.rounds} rounds of {self.iterations} exchanges measure nothing: take at least 1 round and "
                f"{WARM_UP + 1} exchanges, of which {WARM_UP} are dropped."
            )


def measure(
    entries: Sequence[Entry],
    limits: Limits,
    say: Callable[[str], None] = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> list[Measured]:
    """Every entry in every round, in turn; one that fails once is not started again."""
    end = clock() + limits.total
    results = [Measured(entry) for entry in entries]
    for number in range(limits.rounds):
        for result in results:
            if result.failure:
                continue
            left = end - clock()
            if left <= 0:
                if not result.seconds:
                    result.failure = f"not started: the {limits.total:g} s of --limit were over"
                continue
            name = f"{result.entry.contender.name} {result.entry.shape}"
            say(f"round {number + 1} of {limits.rounds}: {name}")
            _once_more(result, limits, min(limits.start, left))
            if result.failure:
                say(f"{name}: {result.failure}")
    return results


def _once_more(result: Measured, limits: Limits, patience: float) -> None:
    try:
        python = python_of(result.entry.contender.environment, REPOSITORY / ".bench")
        seconds, costs = parse(start(command_of(python, result.entry, limits.iterations), patience))
    except (NoEnvironment, StartFailed) as error:
        result.failure = str(error)
        return
    result.seconds += seconds[WARM_UP:]
    for name, value in costs.items():
        result.costs.setdefault(name, []).append(value)


def command_of(python: Path, entry: Entry, iterations: int) -> list[str]:
    """The command line of one start."""
    shape = entry.shape
    numbers = {"elements": shape.elements, "workers": shape.workers, "servers": shape.servers, "iterations": iterations}
    return [
        str(python),
        *entry.contender.command,
        *(word for key, value in numbers.items() for word in (f"--{key}", str(value))),
    ]


def start(command: Sequence[str], patience: float) -> str:
    """Run a contender to its end and hand back what it printed; afterwards none of its processes is left."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=complaints,
            text=True,
            cwd=REPOSITORY,
            env={**os.environ, "TMPDIR": folder},  # its files go with it, even when it is killed
            start_new_session=True,
        )
        try:
            printed, _ = process.communicate(timeout=patience)
        except subprocess.TimeoutExpired:
            raise StartFailed(
                f"ended: took longer than {round(patience, 2):g} s; --start-limit and --limit give more"
            ) from None
        finally:
            _end(process)
        complaints.seek(0)
        if process.returncode:
            raise StartFailed(f"failed: exit code {process.returncode}, {_last_words(complaints.read())}")
    return printed


def _end(process: "subprocess.Popen[str]") -> None:
    """The contender leads its own process group, so that its servers and workers can't outlive it."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()


def _last_words(text: str) -> str:
    """The line that says why: the first exception under a traceback, because later ones follow from it, or the last."""
    lines = [line for line in text.splitlines() if line.strip()] or ["it said nothing"]
    traces = [place for place, line in enumerate(lines) if line.startswith("Traceback ")]
    after = lines[traces[0] + 1 :] if traces else []
    return next((line for line in after if not line.startswith(" ")), lines[-1])[:300]


def parse(printed: str) -> tuple[list[float], dict[str, float]]:
    """(seconds of each iteration, costs) from a contender's lines; StartFailed where they are not as agreed."""
    seconds: list[float] = []
    costs: dict[str, float] = {}
    for line in printed.splitlines():
        record = _record(line)
        if "iteration" in record:
            seconds.append(float(record["seconds"]))
        else:
            costs |= {name: float(value) for name, value in record.items() if value is not None}
    if len(seconds) <= WARM_UP or "cpu_seconds" not in costs:
        raise StartFailed(
            f"wrong output: {len(seconds)} exchanges and costs {sorted(costs)}; "
            f"expected more than {WARM_UP} exchanges and a last line with cpu_seconds"
        )
    return seconds, costs


def _record(line: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError:
        record = None
    if not isinstance(record, dict) or ("iteration" in record and not isinstance(record.get("seconds"), int | float)):
        raise StartFailed(
            f"wrong output: {line[:100]!r}; expected only JSON lines like {{'iteration': 0, 'seconds': 0.2}}"
        )
    return record
