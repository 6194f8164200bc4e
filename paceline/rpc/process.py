"""What every Paceline process does alike: logs, signals, metrics, and telling where it listens."""

import io
import json
import logging
import os
import resource
import select
import signal
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO
from wsgiref.simple_server import WSGIServer

import structlog
from prometheus_client import (
    CollectorRegistry,
    Gauge,
    Metric,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

from paceline.base.private import make_private
from paceline.rpc.auth import Credentials
from paceline.rpc.listening import LOOPBACK
from paceline.rpc.memory import memory_limit
from paceline.rpc.metrics_port import open_metrics_port
from paceline.rpc.notice import Notice, receive, watch


class _Lossy(io.FileIO):
    """A descriptor that takes all that is written, and loses what the disk does not take."""

    def write(self, content: Any, /) -> int:
        left = memoryview(content).cast("B")
        size = len(left)
        with suppress(OSError):
            while left:
                left = left[super().write(left) :]
        return size


def unfailing(stream: TextIO) -> TextIO:
    """stdout or stderr as a stream whose writing never fails, where it is a file: a disk that is full, read-only or failing
    loses lines, not the process. Otherwise the stream itself."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if type(raw) is not io.FileIO or raw.fileno() not in (1, 2) or not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return stream
    with suppress(OSError):
        stream.flush()
    lossy = _Lossy(raw.fileno(), "w", closefd=False)
    is_buffered = buffer is not raw
    return io.TextIOWrapper(
        io.BufferedWriter(lossy) if is_buffered else lossy,
        stream.encoding,
        stream.errors,
        line_buffering=bool(stream.line_buffering),
        write_through=not is_buffered,
    )


class SignalEvent(threading.Event):
    """As its base, whose `set` takes a lock: a handler that runs while its own thread holds that lock, in the middle of
    `wait`, would wait forever. Here a byte in a pipe is what says that it is set. Never cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._is_set = False
        for descriptor in (self._reader, self._writer):
            weakref.finalize(self, os.close, descriptor)

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with suppress(BlockingIOError):  # it was set very often
            os.write(self._writer, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Returns whether it is set, once it is or the seconds are over; any thread may wait."""
        if not self._is_set:
            waiting = select.poll()
            waiting.register(self._reader, select.POLLIN)
            waiting.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return self._is_set


def make_log(name: str) -> Callable[..., None]:
    """A function that logs one event with its facts: JSON lines, or readable ones on a terminal. From now on no print of this
    process fails because of a disk."""
    sys.stdout, sys.stderr = unfailing(sys.stdout), unfailing(sys.stderr)
    render: Any = structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.JSONRenderer()
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
    return structlog.get_logger().bind(process=name).info  # type: ignore[no-any-return]


def serve_metrics(
    port: int, registry: CollectorRegistry, host: str = LOOPBACK, guard: Credentials | None = None, **labels: str
) -> int:
    """Offers the metrics on their own port (0: any free one) and returns it; ConfigError when it is taken. `guard`: as
    `open_metrics_port` takes it; `labels`: of every series; `run` and `process` are what the dashboard uses, however Prometheus
    found the process."""
    return start_metrics(port, registry, host, guard, **labels).server_port


def start_metrics(
    port: int, registry: CollectorRegistry, host: str = LOOPBACK, guard: Credentials | None = None, **labels: str
) -> WSGIServer:
    """The same, for work that ends before its process: returns the HTTP server."""
    disable_created_metrics()
    system, whole = CollectorRegistry(), CollectorRegistry()
    ProcessCollector(registry=system)
    system.register(_Faults())
    Gauge("paceline_memory_limit_bytes", "Memory that the machine or container has", registry=system).set(
        memory_limit()
    )
    whole.register(_Labelled([registry, system], labels))
    return open_metrics_port(port, whole, host, guard)


class _Faults(Collector):
    """What large buffers that come and go cost."""

    def collect(self) -> Iterator[Metric]:
        count = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        yield CounterMetricFamily("paceline_minor_faults", "Page faults without disk of the process", count)


class _Labelled(Collector):
    """Gives every series of some registries the same labels."""

    def __init__(self, registries: Sequence[CollectorRegistry], labels: Mapping[str, str]) -> None:
        self._registries = registries
        self._labels = labels

    def collect(self) -> Iterator[Metric]:
        for registry in self._registries:
            for family in registry.collect():
                family.samples = [
                    sample._replace(labels={**self._labels, **sample.labels}) for sample in family.samples
                ]
                yield family


def stop_on_signals() -> tuple[threading.Event, list[int]]:
    """An event that SIGTERM or Ctrl-C sets, and the list that the signal's number is put in."""
    event, seen = SignalEvent(), list[int]()

    def stop(number: int, frame: object) -> None:
        receive(Notice(signal.Signals(number).name))
        seen.append(number)
        event.set()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    return event, seen


def stop_on_notice(stopping: tuple[threading.Event, list[int]], say: Callable[[str], None]) -> None:
    """Lets the notice that PACELINE_NOTICE names do what SIGTERM does; `stopping`: what `stop_on_signals` returned. ConfigError
    as `watch` raises it."""
    event, seen = stopping

    def stop() -> None:
        seen.append(signal.SIGTERM)
        event.set()

    watch(stop, say)


def report_ports(path: Path | None, **ports: int) -> None:
    """Tells the parent where this process listens, atomically. Where the disk does not take it, a parent that knows the ports
    of the process before has them still."""
    if path is None:
        return
    temporary = path.with_suffix(".tmp")
    try:
        make_private(path.parent)
        temporary.write_text(json.dumps({**ports, "pid": os.getpid()}))
        temporary.replace(path)
    except OSError as error:
        print(f"can't write {path}: {error.strerror}", file=sys.stderr)
