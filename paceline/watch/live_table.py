"""What a run shows while it goes on: a live table on a terminal, plain lines elsewhere."""

import json
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from paceline.core.run.best_model import beside, measure_of, number, scores_of
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus
from paceline.watch.chief_status import loss

EVERY = 5.0
"""Seconds between plain lines while nothing but numbers changes."""
LATE = 5.0
"""Seconds of silence after which a worker is marked."""


class Display(Protocol):
    """Where a run speaks to people."""

    def say(self, text: str) -> None:
        """One message that stays."""

    def show(self, status: StatusReply, rate: float) -> None:
        """Where the run is now."""

    def __enter__(self) -> "Display": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class LiveTable:
    """The table, redrawn in place; messages scroll above it."""

    def __init__(self, console: Console) -> None:
        self._live = Live(console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> "LiveTable":
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, status: StatusReply, rate: float) -> None:
        self._live.update(picture(status, rate), refresh=True)


class PlainLines:
    """A line every few seconds, and at once when the phase or what is missing changes."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._last: object = None
        self._at = -EVERY

    def __enter__(self) -> "PlainLines":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, text: str) -> None:
        self._write(text)

    def show(self, status: StatusReply, rate: float) -> None:
        here = (status.phase, tuple(status.missing))
        if here != self._last or self._now() - self._at >= EVERY:
            self._last, self._at = here, self._now()
            self._write(headline(status, rate))


def headline(status: StatusReply, rate: float) -> str:
    """The run in one line."""
    if status.phase == "waiting":
        return f"waiting for {', and '.join(status.missing) or 'the start'}"
    parts = [status.phase, *_policy(status), f"version {status.version:,}", f"epoch {status.epoch:.1f}"]
    parts += [f"{rate:,.0f} examples/s"]
    mean, score = loss(status), newest_score(status)
    parts += [f"loss {mean:.4f}" if abs(mean) < 1e6 else f"loss {mean:.4g}"] if mean is not None else []
    parts += [score] if score else []
    parts += [f"{', '.join(status.queued)} waiting for a seat"] if status.queued else []
    return ", ".join(parts)


def _policy(status: StatusReply) -> list[str]:
    """The policy's name, and whether it is just changing."""
    if not status.policy:
        return []
    return [f"{json.loads(status.policy)['name']}{' (changing)' if status.switching else ''}"]


def newest_score(status: StatusReply) -> str:
    """'validation accuracy 0.9612', or what the task goes by, of the newest score; the test data's where there is no
    validation part."""
    for score in reversed(status.scores):
        for split in ("validation", "test"):
            metrics = dict(score.metrics)
            measure = measure_of(metrics, score.measure)
            value = scores_of(metrics, split).get(measure.name)
            if value is not None:
                f1 = metrics.get(f"{split}_f1") if measure.name == "accuracy" else None
                more = "" if f1 is None else f", f1 {number(f1)}"
                return (
                    f"{split} {measure.name.replace('_', ' ')} {number(value)}{beside(metrics, measure, split)}{more}"
                )
    return ""


def done(status: StatusReply, before: str) -> str:
    """How much is trained, as '18%' with `before` before it; empty while nobody knows how much there is."""
    return f"{before}{min(1.0, status.examples / status.budget):.0%}" if status.budget else ""


def picture(status: StatusReply, rate: float) -> RenderableType:
    """The run's line and progress, and a table of its workers."""
    head = Text(f"{headline(status, rate)}{done(status, '  ')}  {status.seconds:.1f} s", style="bold")
    numbers = (Column(name, justify="right", no_wrap=True) for name in _COLUMNS)
    table = Table(Column("worker", no_wrap=True), *numbers, "phase", box=SIMPLE_HEAD)
    for worker in status.workers:
        table.add_row(*_row(worker), style=None if worker.member else "dim")
    for name in status.queued:
        table.add_row(name, *["-"] * len(_COLUMNS), "waits for a seat: the pool is full")
    return Group(head, table)


_COLUMNS = ("clock", "lead", "staleness", "alpha", "waiting")


def _row(worker: WorkerStatus) -> list[RenderableType]:
    figures = worker.figures
    numbers = [
        f"{worker.clock:,}",
        str(worker.lead) if worker.member else "-",
        _figure(figures, "staleness", "{:.0f}"),
        _figure(figures, "alpha", "{:.2f}"),
        _figure(figures, "wait_seconds", "{:.1f} s"),
    ]
    phase = f"{worker.phase} {worker.phase_seconds:.1f} s" if worker.phase_seconds >= 1 else worker.phase
    late = worker.silent > LATE and worker.member
    return [
        f"{worker.worker} {worker.host}".strip(),
        *numbers,
        Text(f"{phase}, silent {worker.silent:.0f} s", style="red") if late else phase,
    ]


def _figure(figures: Mapping[str, float], name: str, form: str) -> str:
    return form.format(figures[name]) if name in figures else "-"
