"""What a run tells those who listen: `Callback`, which loggers and users' own callbacks inherit from, and its few values.
Plain values in the launcher's process: no messages, no sockets, and nothing that could change the run."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, ClassVar

from paceline.base.private import make_private
from paceline.core.chief.scoring import Score as Score
from paceline.core.chief.warnings import RunWarning as RunWarning

PACKAGE = "paceline.launch.loggers"
"""The folder of loggers: one file is one, and its stem is its name."""
LOG_PREFIX = "log."
"""What a worker's figures begin with that come from `paceline.log`."""
LEFT_OUT = "left_out_names"
"""A worker's figure: names that its script logs beyond those that a run takes of it."""
_CURVES = {
    "loss": "loss",
    "lr": "learning_rate",
    "examples_per_second": "examples_per_second",
    "staleness": "staleness",
    "alpha": "alpha",
    "wait_seconds": "wait_seconds",
}
"""Figures of a worker that make a curve, with its name."""


class End(StrEnum):
    """How a run ended."""

    FINISHED = "finished"
    """To its end, or by `paceline stop`: the final version is scored."""
    FAILED = "failed"
    STOPPED = "stopped"
    """By Ctrl-C or SIGTERM; it can be resumed."""


@dataclass(frozen=True, slots=True)
class RunBegin:
    """A run whose servers are up: its workers start now."""

    name: str
    folder: Path
    """The run's own; a logger may keep what it must remember for when the run is resumed (`remembered`)."""
    settings: Mapping[str, bool | int | float | str]
    """All settings by their keys, like 'optimizer.lr', sections opened; lists are JSON, what is not set is left out."""
    is_resumed: bool

    def remembered(self, logger: str, value: str = "") -> str:
        """What the logger has kept of this run; a value that is given is kept from now on."""
        kept = self.folder / "loggers" / logger
        if value:
            make_private(kept.parent)
            kept.write_text(value)
        return kept.read_text() if kept.is_file() else ""


@dataclass(frozen=True, slots=True)
class WorkerState:
    """Where one worker is."""

    name: str
    clock: int
    """Pushes that it has completed."""
    lead: int
    """Clocks that it is ahead of the slowest member."""
    phase: str
    is_member: bool
    figures: Mapping[str, float]
    """The newest that it told of itself: loss, lr, examples_per_second, staleness, alpha, wait_seconds (so far), ..."""
    logged: Mapping[str, float]
    """The newest that its script gave to `paceline.log`."""

    @property
    def curves(self) -> dict[str, float]:
        """What changes over the run, named for charts: 'loss', 'learning_rate', 'log/accuracy'."""
        return _curves("", [self])


@dataclass(frozen=True, slots=True)
class Status:
    """Where the run is."""

    phase: str
    """waiting, training, stopping, scoring or finished."""
    version: int
    """Pushes or rounds that are in the model; what curves are drawn over."""
    epoch: float
    examples: int
    seconds: float
    """Training time."""
    examples_per_second: float
    policy: str
    """The name of the policy in force."""
    workers: tuple[WorkerState, ...]

    @property
    def curves(self) -> dict[str, float]:
        """What changes over the run, means of the members: 'run/loss', 'run/learning_rate', 'log/accuracy'."""
        members = [worker for worker in self.workers if worker.is_member] or self.workers
        rates = {"run/examples_per_second": self.examples_per_second, "run/epoch": self.epoch}
        return _curves("run/", members) | rates


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How the run ended; all its processes are gone."""

    how: End
    exit_code: int
    reason: str
    seconds: float
    """Training time."""
    version: int
    metrics: Mapping[str, float]
    """The final version's scores, like 'test_accuracy'; empty where it was not scored."""
    warnings: tuple[RunWarning, ...]
    model: Path | None
    """The final version's weights (safetensors); None where there are none."""


class Callback:
    """Hears what a run does, in the process that started it. Inherit from it and write the methods that you need.

    Calls come one at a time, in the order of what happened, in a thread of the callback's own: one that is slow does not
    slow the run, but misses some of the statuses. What a method raises is said once, and the run goes on; where `begun`
    raises, the callback hears nothing more. After `ended` it has some seconds to return (docs/watch/loggers.md)."""

    needs: ClassVar[str] = ""
    """A library that must be installed; the extra of Paceline that brings it has the logger's name."""

    def begun(self, run: RunBegin) -> None:
        """The run's servers are up, or up again; comes first, and once."""

    def status(self, status: Status) -> None:
        """Something is new: at most twice a second."""

    def scored(self, score: Score) -> None:
        """The evaluator has scored a version: at most once an epoch, and the final one."""

    def warned(self, warning: RunWarning) -> None:
        """Something goes wrong although the run goes on (docs/failures/promises-and-failures.md): once for each kind."""

    def ended(self, end: RunEnd) -> None:
        """The run is over; comes last, and once."""


def chart_name(metric: str) -> str:
    """'test_accuracy' as 'test/accuracy', so that charts are grouped by split."""
    return metric.replace("_", "/", 1)


def flat(settings: Mapping[str, Any]) -> dict[str, bool | int | float | str]:
    """Nested settings by dotted keys; lists are JSON, and None is left out."""
    plain = (bool, int, float, str)
    return {key: value if isinstance(value, plain) else json.dumps(value) for key, value in leaves(settings)}


def leaves(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The same, with lists as they are."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from leaves(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", value


def _curves(group: str, workers: Iterable[WorkerState]) -> dict[str, float]:
    """Means over the workers that have said it; `group`: what names begin with, but those of logged values."""
    said: dict[str, list[float]] = {}
    for worker in workers:
        for figure, name in _CURVES.items():
            if figure in worker.figures:
                said.setdefault(f"{group}{name}", []).append(worker.figures[figure])
        for name, value in worker.logged.items():
            said.setdefault(f"log/{name}", []).append(value)
    return {name: sum(values) / len(values) for name, values in said.items()}
