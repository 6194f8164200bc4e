"""What a run shows while it goes on: a live table on a terminal, plain lines elsewhere."""

import textwrap
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from paceline.core.run.best_model import beside, measure_of, number, scores_of
from paceline.core.run.straggler import Straggler, straggler
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus
from paceline.watch.chief_status import loss, policy_name

WIDTH = 80
"""Columns of a terminal that nobody has made wider."""
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
            self._last = here
            self._at = self._now()
            self._write(headline(status, rate))


def headline(status: StatusReply, rate: float) -> str:
    """Where the run is, in lines of `WIDTH`."""
    if status.phase == "waiting":
        return folded(f"waiting for {', and '.join(status.missing) or 'the start'}")
    parts = [f"{status.phase}{done(status, ' ')}", f"elapsed {spell(status.seconds)}", *_remaining(status, rate)]
    parts += [*_policy(status), f"epoch {status.epoch:.1f}", f"version {status.version:,}", f"{rate:,.0f} examples/s"]
    mean, score = loss(status), newest_score(status)
    parts += [f"loss {mean:.4f}" if abs(mean) < 1e6 else f"loss {mean:.4g}"] if mean is not None else []
    parts += [score] if score else []
    parts += [f"{', '.join(status.queued)} waiting for a seat"] if status.queued else []
    return folded(", ".join(parts))


def folded(text: str) -> str:
    """The text in lines of at most `WIDTH`, those after the first one indented."""
    return "\n".join(textwrap.wrap(text, WIDTH, subsequent_indent="  ", break_on_hyphens=False))


def spell(seconds: float) -> str:
    """'8.2 s', '75 s', '12 min', '3 h 20 min'."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _remaining(status: StatusReply, rate: float) -> list[str]:
    """How long it will train on at this rate; nothing while that is not known."""
    left = status.budget - status.examples
    return [f"remaining {spell(left / rate)}"] if status.phase == "training" and rate > 0 and left > 0 else []


def _policy(status: StatusReply) -> list[str]:
    """The policy's name, and whether it is just changing."""
    if not status.policy:
        return []
    return [f"{policy_name(status)}{' (changing)' if status.switching else ''}"]


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
    """The run's line and progress, a table of its workers, and which of them holds the others up."""
    head = Text(headline(status, rate), style="bold", no_wrap=True)
    slow = slowest(status)
    mixes = any(worker.figures.get("alpha", 1.0) != 1.0 for worker in status.workers)
    columns = [column for column in _COLUMNS if column.name != "alpha" or mixes]
    table = Table(
        Column("worker", no_wrap=True),
        *(Column(column.name, justify="right", no_wrap=True) for column in columns),
        Column("phase", no_wrap=True, overflow="ellipsis"),
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    for worker in status.workers:
        is_slow = slow is not None and slow.worker == worker.worker
        style = "yellow" if is_slow else None if worker.member else "dim"
        name = f"{worker.worker} {worker.host}".strip()
        table.add_row(name, *(column.cell(worker) for column in columns), _phase(worker, is_slow), style=style)
    for name in status.queued:
        table.add_row(name, *["-"] * len(columns), "pool is full")
    told = [] if slow is None else [Text(folded(str(slow)), style="yellow", no_wrap=True)]
    return Group(head, Text(), table, *told)


def slowest(status: StatusReply) -> Straggler | None:
    """The worker that holds the others up, if there is one."""
    members = [worker for worker in status.workers if worker.member and "step_seconds" in worker.figures]
    steps = {worker.worker: worker.figures["step_seconds"] for worker in members}
    return straggler(steps, {worker.worker: worker.figures.get("wait_seconds", 0.0) for worker in members})


def _phase(worker: WorkerStatus, is_slow: bool) -> RenderableType:
    """What it does, and what is odd about it."""
    if worker.silent > LATE and worker.member:
        return Text(f"silent {spell(worker.silent)}", style="red")
    if is_slow:
        return "straggler"
    return f"{worker.phase} {spell(worker.phase_seconds)}" if worker.phase_seconds >= 1 else worker.phase


def _figure(name: str, form: str, times: float = 1.0) -> Callable[[WorkerStatus], str]:
    """The cell of one of the worker's figures."""
    return lambda worker: form.format(times * worker.figures[name]) if name in worker.figures else "-"


class _Column(NamedTuple):
    name: str
    cell: Callable[[WorkerStatus], str]


_COLUMNS = (
    _Column("clock", lambda worker: f"{worker.clock:,}"),
    _Column("lead", lambda worker: str(worker.lead) if worker.member else "-"),
    _Column("stale", _figure("staleness", "{:.0f}")),
    _Column("alpha", _figure("alpha", "{:.2f}")),
    _Column("examples/s", _figure("examples_per_second", "{:,.0f}")),
    _Column("step", _figure("step_seconds", "{:.3g} ms", 1000)),
    _Column("waited", _figure("wait_seconds", "{:.1f} s")),
)
