"""What the sharder shows while it works: a bar on a terminal, plain lines elsewhere; and what it tells Prometheus."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge
from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from paceline.base.terminal import show
from paceline.data.progress import Progress
from paceline.rpc.listening import LOOPBACK
from paceline.rpc.process import start_metrics

EVERY = 10.0
"""Seconds from one plain line of a stage to the next."""


@contextmanager
def progress_of(
    console: Console, metrics_port: int | None = None, host: str = LOOPBACK, registry: CollectorRegistry | None = None
) -> Iterator[Progress]:
    """Shows progress on the console, and to Prometheus if a port is given (0: any free one) on `host`, until the block ends.
    `registry`: one that is served already. Raises ConfigError if the port is taken. Called from one thread."""
    with ExitStack() as stack:
        registry = registry or CollectorRegistry()
        port = None if metrics_port is None else stack.enter_context(_served(metrics_port, host, registry))
        progress = _Both(stack.enter_context(_display(console)), SharderMetrics(registry))
        if port is not None:
            progress.say(f"Metrics are on port {port}.")
        yield progress


class PlainLines(Progress):
    """A line when a stage begins, every few seconds, and when all its examples are done. Called from one thread."""

    def __init__(self, write: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._now = now
        self._name = ""
        self._total = 0
        self._done = 0
        self._began = self._last = now()

    def stage(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self._began = self._last = self._now()
        self._write(f"{name}: {total:,} examples")

    def advance(self, count: int) -> None:
        before, now = self._done, self._now()
        self._done += count
        if before < self._total <= self._done or now - self._last >= EVERY:
            self._last = now
            self._write(self._line(now - self._began))

    def say(self, line: str) -> None:
        self._write(line)

    def _line(self, seconds: float) -> str:
        rate = self._done / seconds if seconds else 0.0
        parts = [f"{self._name}: {self._done:,} of {self._total:,} examples"]
        if rate:
            parts.append(f"{rate:,.0f}/s")
        if self._done >= self._total:
            parts.append(f"took {_duration(seconds)}")
        elif rate:
            parts.append(f"{_duration((self._total - self._done) / rate)} left")
        return ", ".join(parts)


class Bars(Progress):
    """A bar for each stage; lines that are said scroll above them. Called from one thread."""

    def __init__(self, bars: RichProgress) -> None:
        self._bars = bars
        self._bar = TaskID(0)

    def stage(self, name: str, total: int) -> None:
        self._bar = self._bars.add_task(name, total=total)
        self._bars.advance(self._bar, 0)  # where rates count from; and a stage without examples is done

    def advance(self, count: int) -> None:
        self._bars.advance(self._bar, count)

    def say(self, line: str) -> None:
        show(self._bars.console, line)


class _Both(Progress):
    """Passes everything on to people and to Prometheus."""

    def __init__(self, display: Progress, metrics: Progress) -> None:
        self._display = display
        self._metrics = metrics

    def stage(self, name: str, total: int) -> None:
        self._display.stage(name, total)
        self._metrics.stage(name, total)

    def advance(self, count: int) -> None:
        self._display.advance(count)
        self._metrics.advance(count)

    def shard(self, number: int, examples: int) -> None:
        self._metrics.shard(number, examples)

    def say(self, line: str) -> None:
        self._display.say(line)


class _RateColumn(ProgressColumn):
    """Examples per second, over the last half minute of the stage."""

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text(f"{rate:,.0f}/s" if rate else "", style="progress.data.speed")


@contextmanager
def _display(console: Console) -> Iterator[Progress]:
    if not console.is_interactive:
        yield PlainLines(partial(show, console))
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f}"),
        _RateColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    with RichProgress(*columns, console=console) as bars:
        yield Bars(bars)


@contextmanager
def _served(port: int, host: str, registry: CollectorRegistry) -> Iterator[int]:
    """The port that the metrics are on while the block runs."""
    web = start_metrics(port, registry, host, process="sharder")
    try:
        yield web.server_port
    finally:
        web.shutdown()
        web.server_close()


def _duration(seconds: float) -> str:
    """'17 s', '25 min' or '3.5 h'."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


class SharderMetrics(Progress):
    """The `paceline_sharder_*` and `paceline_shard_*` metrics of one process. Called from one thread."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._ratio = Gauge(
            "paceline_sharder_progress_ratio", "Share of the stage that is done", ["stage"], registry=registry
        )
        self._examples = Counter(
            "paceline_sharder_examples_total", "Examples done in the stage", ["stage"], registry=registry
        )
        self._shards = Gauge("paceline_shard_examples", "Examples of the shard", ["shard"], registry=registry)
        self._name = ""
        self._total = 0
        self._done = 0

    def stage(self, name: str, total: int) -> None:
        self._name = name
        self._total = total
        self._done = 0
        self.advance(0)

    def advance(self, count: int) -> None:
        self._done += count
        self._examples.labels(self._name).inc(count)
        self._ratio.labels(self._name).set(min(1.0, self._done / self._total) if self._total else 1.0)

    def shard(self, number: int, examples: int) -> None:
        self._shards.labels(str(number)).set(examples)


class ServingMetrics:
    """The `paceline_sharder_*` metrics of what is sent."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.sent = Counter("paceline_sharder_sent_bytes_total", "Bytes of shards sent", registry=registry)
        self._requests = Counter(
            "paceline_sharder_requests_total", "Finished calls", ["method", "code"], registry=registry
        )

    def call(self, method: str, code: str, seconds: float) -> None:
        """One finished call."""
        self._requests.labels(method, code).inc()
