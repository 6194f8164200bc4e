"""`python -m paceline.sharder serve`: the one process that mounts the shards' volume streams them to workers and evaluator."""

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry
from rich.console import Console

from paceline.core.errors import DataError, PacelineError, Stopped, TryAgain, UsageError
from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.manifest import render
from paceline.data.shards import Shards, open_shards
from paceline.processes.command_line import end_process, options_of
from paceline.processes.exits import exits
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.channel import call, open_channel
from paceline.rpc.host import Health, bind, make_server
from paceline.rpc.listening import LOOPBACK
from paceline.rpc.outages import Outage, Say
from paceline.rpc.process import make_log, report_ports, serve_metrics, stop_on_signals
from paceline.rpc.protocol_version import check_protocol
from paceline.rpc.watchdog import Watchdog
from paceline.sharder.command_line import ToldShardServer
from paceline.sharder.progress_bars import ServingMetrics, progress_of
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_config
from paceline.v1 import shard_service_pb2 as pb
from paceline.v1.run_service_pb2 import StatusRequest
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.v1.shard_service_pb2_grpc import ShardServiceServicer, add_ShardServiceServicer_to_server

PART = 1 << 20
"""Bytes of a message, the last one excepted."""
MOST = 64 << 20
"""Most that one call may ask for (bytes), so that many readers take turns."""
_THREADS = 16
"""Calls served at one time; the reply to any other asks the reader to try again."""
_LONGEST_WAIT = 5.0
"""Longest wait (seconds) for the counts before the reply asks the reader to try again."""
_KEYS_EVERY = 15.0
"""Time between two calls to the chief (seconds)."""
Ranges = Sequence[tuple[int, int]]
Reply = TypeVar("Reply", pb.ManifestReply, pb.FetchReply, pb.CountsReply)


class ShardServicer(ShardServiceServicer):
    """Sends files that the manifest names, and no others. Thread-safe."""

    def __init__(self, shards: Shards, metrics: ServingMetrics, watchdog: Watchdog) -> None:
        self._shards = shards
        self._metrics = metrics
        self._watchdog = watchdog
        self._fingerprint = shards.manifest.fingerprint
        self._counter = ThreadPoolExecutor(1, thread_name_prefix="counts")
        self._counted: Future[Rows] | None = None
        self._lock = threading.Lock()

    def Manifest(self, request: pb.ManifestRequest, context: Any) -> Iterator[pb.ManifestReply]:
        check_protocol(request.protocol, "a reader", "the server of shards")
        return self._sent(_cut(render(self._shards.manifest)), pb.ManifestReply, context)

    def Fetch(self, request: pb.FetchRequest, context: Any) -> Iterator[pb.FetchReply]:
        self._check(request.fingerprint)
        entries = self._shards.manifest.entries()
        files = entries[request.name].files if request.name in entries else {}
        entry = next((entry for file, entry in files.items() if file == request.file), None)
        if entry is None:
            there = (
                f"shard-0 to shard-{len(self._shards) - 1}, {', '.join(self._shards.manifest.parts) or 'nothing else'}"
            )
            raise DataError(
                f"The shard server has no file {request.file[:40]!r} of {request.name[:40]!r}; it serves {there}. "
                "Give all processes of the run the same settings."
            )
        ranges = [(each.start, each.stop) for each in request.ranges]
        if not all(start <= stop <= entry.bytes for start, stop in ranges) or _total(ranges) > MOST:
            raise UsageError(
                f"The call asks for {_total(ranges):,} bytes of {request.name}/{request.file}, which has "
                f"{entry.bytes:,}. A call may ask for at most {MOST:,} inside the file."
            )
        return self._sent(
            _read(self._shards.folder / request.name / f"{request.file}.npy", ranges), pb.FetchReply, context
        )

    def Counts(self, request: pb.CountsRequest, context: Any) -> Iterator[pb.CountsReply]:
        self._check(request.fingerprint)
        if self._shards.manifest.shards[0].columns is None:
            raise DataError(
                "The shards here hold dense rows, but only sparse rows have counts of features. Don't ask for them here."
            )
        with self._lock:
            if self._counted is None or (self._counted.done() and self._counted.exception()):
                self._counted = self._counter.submit(self._shards.feature_counts)
            counted = self._counted
        try:
            counts = counted.result(_LONGEST_WAIT)
        except TimeoutError:
            raise TryAgain("The server still counts how many examples have each feature. Ask again.") from None
        return self._sent(_cut(counts.astype("<i8").tobytes()), pb.CountsReply, context)

    def _check(self, fingerprint: str) -> None:
        if fingerprint != self._fingerprint:
            raise DataError(
                f"The shards here ({self._fingerprint[:12]}) are not those that the caller began with "
                f"({fingerprint[:12] or 'none'}). Start the processes of the run again."
            )

    def _sent(self, parts: Iterator[bytes], kind: Callable[..., Reply], context: Any) -> Iterator[Reply]:
        for part in self._watchdog.sending(parts, context.cancel):
            yield kind(data=part)
            self._metrics.sent.inc(len(part))


class ShardServer:
    """Serves whole shards. ConfigError: the port is taken."""

    def __init__(
        self, shards: Shards, credentials: Credentials, port: int, registry: CollectorRegistry, host: str = LOOPBACK
    ) -> None:
        metrics = ServingMetrics(registry)
        self._watchdog = Watchdog()
        self._grpc = make_server(_THREADS, authentication(credentials), metrics.call)
        add_ShardServiceServicer_to_server(ShardServicer(shards, metrics, self._watchdog), self._grpc)
        self.port = bind(self._grpc, port, "gRPC", credentials.tls, host)

    def start(self) -> None:
        """Begins to serve."""
        self._watchdog.start()
        self._grpc.start()

    def close(self, grace: float) -> None:
        """Refuses new calls and lets running ones end within `grace` seconds."""
        self._grpc.stop(grace).wait()


@options_of(ToldShardServer)
def main(told: ToldShardServer) -> None:
    """Streams the shards to workers and the evaluator until a stop signal; writes them first, as without `serve`."""
    with exits("sharder"):
        end_process(_serve(load_config(told.config, told.overrides()), told))


def _serve(config: Config, told: ToldShardServer) -> int:
    """Writes and serves; returns the exit code."""
    credentials = replace(told.credentials(), learns=bool(told.chief))
    signal.signal(signal.SIGTERM, _stop_writing)
    say, registry = make_log("sharder"), CollectorRegistry()
    health = Health(told.health_port, told.bind)
    guard, run = told.metrics_guard(credentials), config.run or ""
    metrics_port = serve_metrics(told.metrics_port, registry, told.bind, guard, run=run, process="sharder")
    with progress_of(Console(), registry=registry) as progress:
        manifest = make_shards(config, told.out, progress=progress)
        for number, examples in enumerate(manifest.sizes):
            progress.shard(number, examples)
    stop, signals = stop_on_signals()
    server = ShardServer(open_shards(told.out), credentials, told.port, registry, told.bind)
    server.start()
    if told.chief:
        threading.Thread(target=_learn_keys, args=(told.chief, credentials, stop, say), daemon=True).start()
    health.serving(True)
    report_ports(told.report, port=server.port, metrics_port=metrics_port, health_port=health.port)
    say("serving", port=server.port, shards=len(manifest.shards), folder=os.fspath(told.out))
    stop.wait()
    say("stopping")
    health.serving(False)
    server.close(grace=5.0)
    health.stop()
    return 130 if signal.SIGINT in signals else Stopped.exit_code


def _learn_keys(chief: str, credentials: Credentials, stop: threading.Event, say: Say) -> None:
    """Asks the chief again and again: its replies bring the keys of a secret that replaces the run's."""
    service: Any = RunServiceStub(open_channel(chief, credentials))
    outage = Outage(
        f"the chief at {chief}", say, advice="Without it, readers are refused after the run's secret changes."
    )
    while not stop.wait(_KEYS_EVERY):
        try:
            call(service.Status, StatusRequest(), _KEYS_EVERY)
            outage.works()
        except PacelineError as error:
            outage.failed("a look at the run", str(error))


def _stop_writing(number: int, frame: object) -> None:
    """SIGTERM while shards are written: what is half-written goes away."""
    raise Stopped("The sharder got a signal to stop.")


def _total(ranges: Ranges) -> int:
    return sum(stop - start for start, stop in ranges)


def _cut(content: bytes) -> Iterator[bytes]:
    return (content[start : start + PART] for start in range(0, len(content), PART))


def _read(path: Path, ranges: Ranges) -> Iterator[bytes]:
    """The ranges' bytes end to end; DataError where the file can't be read or is too short."""
    part = bytearray()
    try:
        with path.open("rb") as stream:
            for start, stop in ranges:
                stream.seek(start)
                while start < stop:
                    found = stream.read(min(stop - start, PART - len(part)))
                    if not found:
                        raise DataError(f"{path} is damaged: it ends at byte {start:,}. Make the shards again.")
                    part += found
                    start += len(found)
                    if len(part) == PART:
                        yield bytes(part)
                        part.clear()
    except OSError as error:
        raise DataError(f"Can't read {path}: {error.strerror}. Is the volume with the shards mounted?") from error
    if part:
        yield bytes(part)
