"""What a run shows while it goes on: a live table on a terminal, plain lines elsewhere."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from io import StringIO
from types import TracebackType
from typing import NamedTuple, Protocol

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from paceline.base.terminal import can_redraw, fitted, show
from paceline.core.chief.best_model import beside, measure_of, number, scores_of
from paceline.core.chief.straggler import Straggler, straggler
from paceline.core.chief.warnings import CAPPED
from paceline.core.explain.cause import Finding
from paceline.launch.status.chief_status import loss, policy_name
from paceline.launch.status.evidence import advice_line
from paceline.rpc.enums import phase_of
from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus

EVERY = 5.0
"""Seconds between plain lines while nothing but numbers changes."""
LATE = 5.0
"""Seconds of silence after which a worker is marked."""
_TIED = "\u00a0"
"""A space at which no line is broken."""
_WIDE = 1000
"""Columns of a file or pipe, whose lines nobody folds."""


Show = Callable[[StatusReply, float, Sequence[Finding]], None]
"""Gets each status of a run, with its examples per second and what holds it up."""


class Display(Protocol):
    """Where a run speaks to people."""

    def say(self, text: str) -> None:
        """One message that stays."""

    def echo(self, text: str) -> None:
        """A line that a script has printed, which stays as it is."""

    def show(self, status: StatusReply, rate: float, causes: Sequence[Finding] = ()) -> None:
        """Where the run is now, and what holds it up."""

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
        show(self._live.console, text)

    def echo(self, text: str) -> None:
        self._live.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, status: StatusReply, rate: float, causes: Sequence[Finding] = ()) -> None:
        self._live.update(picture(status, rate, self._live.console.width, causes), refresh=True)


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

    def echo(self, text: str) -> None:
        self._write(text)

    def show(self, status: StatusReply, rate: float, causes: Sequence[Finding] = ()) -> None:
        here = (phase_of(status), tuple(status.missing))
        if here != self._last or self._now() - self._at >= EVERY:
            self._last = here
            self._at = self._now()
            self._write(headline(status, rate))
            for line in outages(status):
                self._write(line)


def headline(status: StatusReply, rate: float) -> str:
    """Where the run is, in one line."""
    return ", ".join(_facts(status, rate))


def _facts(status: StatusReply, rate: float) -> list[str]:
    if phase_of(status) == "waiting":
        return f"waiting for {', and '.join(status.missing) or 'the start'}".split(", ")
    parts = [f"{phase_of(status)}{done(status, ' ')}", f"elapsed {spell(status.seconds)}", *_remaining(status, rate)]
    parts += [*_policy(status), _at(status), f"version {status.version:,}", _pace(status, rate)]
    mean, score = loss(status), newest_score(status)
    parts += [f"loss {mean:.4f}" if abs(mean) < 1e6 else f"loss {mean:.4g}"] if mean is not None else []
    parts += [score] if score else []
    parts += [f"{', '.join(status.queued)} waiting for a seat"] if status.queued else []
    return parts


def _at(status: StatusReply) -> str:
    return f"step {status.epoch:,.0f} of {status.steps:,}" if status.steps else f"epoch {status.epoch:.1f}"


def _pace(status: StatusReply, rate: float) -> str:
    """The rate in the run's own unit; each worker's mini-batch counts as one example where nobody knows how many it has."""
    if status.steps:
        return f"{rate * status.steps / status.budget if status.budget else 0:.3g} steps/s"
    return f"{rate:,.0f} examples/s"


def spell(seconds: float) -> str:
    """'8.2 s', '75 s', '12 min', '3 h 20 min'."""
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


def _remaining(status: StatusReply, rate: float) -> list[str]:
    """How long it will train on at this rate; nothing while that is not known."""
    left = status.budget - status.examples
    return [f"remaining {spell(left / rate)}"] if phase_of(status) == "training" and rate > 0 and left > 0 else []


def _policy(status: StatusReply) -> list[str]:
    """The policy's name, behind the one that has chosen it, and whether it is just changing."""
    if not status.HasField("policy"):
        return []
    name = policy_name(status)
    chosen = f"{status.chosen_by}: {name}" if status.chosen_by not in ("", name) else name
    return [f"{chosen}{' (changing)' if status.switching else ''}"]


def newest_score(status: StatusReply) -> str:
    """'validation accuracy 0.9612', or what the task is judged by, of the newest score; the test data's where there is no
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


def display_on(console: Console) -> Display:
    """The table where it can be redrawn, otherwise lines."""
    return LiveTable(console) if can_redraw(console) else PlainLines(partial(show, console))


def picture(status: StatusReply, rate: float, width: int, causes: Sequence[Finding] = ()) -> RenderableType:
    """The run's line and progress, a table of its workers, and what holds them up, in this many columns."""
    head = Text(_headlines(status, rate, width), style="bold", no_wrap=True)
    table, machines = table_of(status, width)
    told = [Text(fitted(line, width), no_wrap=True) for line in machines]
    told += [Text(fitted(line, width), style="yellow", no_wrap=True) for line in _holds_up(status, causes)]
    return Group(head, Text(), table, *told)


def _holds_up(status: StatusReply, causes: Sequence[Finding]) -> list[str]:
    """Lines on what holds the run up; one on the straggler only where no cause blames it."""
    slow, blamed = slowest(status), {worker for each in causes for worker in each.workers}
    return [
        *outages(status),
        *([str(slow)] if slow and slow.worker not in blamed else []),
        *(advice_line(each, status.run) for each in causes),
    ]


def outages(status: StatusReply) -> list[str]:
    """Lines on the workers whose calls keep failing."""
    return [f"{worker.worker}: {worker.outage}" for worker in status.workers if worker.outage]


def show_picture(console: Console, status: StatusReply, rate: float, causes: Sequence[Finding] = ()) -> None:
    """The same once on a console; in whole lines where that is no terminal."""
    if console.is_terminal:
        console.print(picture(status, rate, console.width, causes))
        return
    show(console, headline(status, rate) + "\n")
    Console(file=console.file, width=_WIDE).print(table_of(status, _WIDE)[0])
    for line in _holds_up(status, causes):
        show(console, line)


def _headlines(status: StatusReply, rate: float, width: int) -> str:
    """The run's line, broken between two facts: 'loss' is not parted from its number."""
    whole = (fact.replace(" ", _TIED) if len(fact) < width // 2 else fact for fact in _facts(status, rate))
    return fitted(", ".join(whole), width).replace(_TIED, " ")


def table_of(status: StatusReply, width: int) -> tuple[Table, list[str]]:
    """A row for each worker; and lines on machines, where their names don't fit into the table."""
    hosts = {worker.worker: worker.host for worker in status.workers if worker.host}
    for shown in (hosts, without_domain(hosts)):
        table = _table(status, shown)
        if not hosts or Console(file=StringIO(), width=_WIDE).measure(table).maximum <= width:
            return table, []
    named = {host: ", ".join(name for name in hosts if hosts[name] == host) for host in sorted({*hosts.values()})}
    return _table(status, {}), [f"machine {host}: {workers}" for host, workers in named.items()]


def without_domain(hosts: Mapping[str, str]) -> dict[str, str]:
    """The names of machines without what all of them end with, from a dot on: 'a', 'b' for 'a.example.com', 'b.example.com'.
    Addresses are left as they are."""
    parts = [host.split(".") for host in hosts.values()]
    if any(part[-1].isdigit() or ":" in part[-1] for part in parts):
        return dict(hosts)
    alike = min((len(part) for part in parts), default=1) - 1
    while alike and len({tuple(part[-alike:]) for part in parts}) > 1:
        alike -= 1
    return {name: ".".join(host.split(".")[: -alike or None]) for name, host in hosts.items()}


def _table(status: StatusReply, hosts: Mapping[str, str]) -> Table:
    slow = slowest(status)
    mixes = any(worker.figures.get("alpha", 1.0) != 1.0 for worker in status.workers)
    tells = {"alpha": mixes, CAPPED: any(worker.figures.get(CAPPED) for worker in status.workers)}
    columns = [column for column in _COLUMNS if tells.get(column.name, True)]
    units = {"examples/s": "steps/s"} if status.steps else {}
    table = Table(
        Column("worker", no_wrap=True),
        *([Column("machine", no_wrap=True)] if hosts else []),
        *(Column(units.get(column.name, column.name), justify="right", no_wrap=True) for column in columns),
        Column("phase", no_wrap=True, overflow="ellipsis"),
        box=SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=0,
    )
    for worker in status.workers:
        is_slow = slow is not None and slow.worker == worker.worker
        style = "yellow" if is_slow else None if worker.member else "dim"
        where = [hosts.get(worker.worker, "")] if hosts else []
        cells = (column.cell(worker) for column in columns)
        table.add_row(worker.worker, *where, *cells, _phase(worker, is_slow), style=style)
    for name in status.queued:
        table.add_row(name, *["-"] * (len(columns) + bool(hosts)), "pool is full")
    return table


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
    return f"{phase_of(worker)} {spell(worker.phase_seconds)}" if worker.phase_seconds >= 1 else phase_of(worker)


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
    _Column(CAPPED, _figure(CAPPED, "{:,.0f}")),
    _Column("examples/s", _figure("examples_per_second", "{:,.0f}")),
    _Column("step", _figure("step_seconds", "{:.3g} ms", 1000)),
    _Column("waited", _figure("wait_seconds", "{:.1f} s")),
)
