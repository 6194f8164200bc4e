"""How a worker and the evaluator begin and end: logs, signals, metrics, then shards and servers, then their own work."""

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError, Stopped
from paceline.core.settings.config import Config
from paceline.data.shards import Shards, is_there, open_shards
from paceline.rpc.auth import Credentials
from paceline.rpc.malloc import tune_malloc
from paceline.rpc.process import make_log, report_ports, serve_metrics, stop_on_signals
from paceline.worker.command_line import ToldClient, ToldWorker
from paceline.worker.startup.streamed_shards import RemoteShards, ShardClient
from paceline.worker.surroundings import Surroundings

T = TypeVar("T", bound=ToldClient)


@dataclass(frozen=True, slots=True)
class Start(Generic[T]):
    """What a process is told, and what the files named there say."""

    told: T
    config: Config
    credentials: Credentials

    @classmethod
    def read(cls, told: T) -> Self:
        """ConfigError, UsageError: a file or a setting can't be read."""
        return cls(told, told.load(), told.credentials())


def rank_of(name: str) -> int:
    """The number in a worker's name; 0 where it has none."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0


def run_process(
    start: Start[Any],
    work: Callable[[Surroundings, Shards], None],
    stopping: tuple[threading.Event, list[int]] | None = None,
) -> int:
    """Waits for the shards, does the work, and returns the exit code. `stopping`: what `stop_on_signals` gave, where this is
    not the main thread, in which alone signals can be caught."""
    told, config = start.told, start.config
    tune_malloc()
    if config.updates == "dense":
        from paceline.worker.training.model_and_gradient import use_threads

        use_threads(told.threads)
    say = make_log(told.name)
    stop, signals = stopping or stop_on_signals()
    addresses = check_addresses(told.servers, config)
    registry = CollectorRegistry()
    port = serve_metrics(told.metrics_port, registry, run=config.run or "", process=told.name)
    report_ports(told.report, metrics_port=port)
    try:
        shards = find_shards(start, stop, say)
        around = Surroundings(
            config=config,
            name=told.name,
            addresses=addresses,
            credentials=start.credentials,
            stop=stop,
            say=say,
            registry=registry,
            residuals=told.residuals if isinstance(told, ToldWorker) else None,
        )
        work(around, shards)
    except Stopped:
        say("stopped on request")
        return 130 if signal.SIGINT in signals else Stopped.exit_code
    return 0


def find_shards(start: Start[Any], stop: threading.Event, say: Callable[..., None]) -> Shards:
    """The shards, as soon as they or their server are there; says every 10 s that it waits."""
    told, config, server = start.told, start.config, start.told.shard_server
    if (config.data.source == "server") != bool(server):
        raise ConfigError(
            f"data.source is {config.data.source}, but {'a' if server else 'no'} --shard-server was given. Set "
            "data.source=server and give --shard-server HOST:PORT, or neither."
        )
    if server:
        client = ShardClient(server, start.credentials, time.monotonic() + config.deadline, stop, say)
        shards: Shards = RemoteShards(told.shards, client, say)
    else:
        shards = wait_for_shards(told.shards, stop, say)
    if len(shards) < config.workers:
        raise ConfigError(
            f"{config.workers} workers but only {len(shards)} shards in {server or told.shards}: every worker needs one. "
            f"Write more: paceline shard --set data.shards={config.workers} --fresh."
        )
    return shards


def wait_for_shards(folder: Path, stop: threading.Event, say: Callable[..., None]) -> Shards:
    """Opens the shards in a folder as soon as they are there."""
    said = time.monotonic()
    while not is_there(folder):
        if time.monotonic() - said >= 10:
            said = time.monotonic()
            say("waiting for shards; write them with: paceline shard", folder=str(folder))
        if stop.wait(0.2):
            raise Stopped("The process was told to stop.")
    return open_shards(folder)


def check_addresses(addresses: str, config: Config) -> list[str]:
    """'host:port,host:port' as a list with one address for each server; 'server-{}:port' stands for all of them."""
    found = [address.strip() for address in addresses.split(",") if address.strip()]
    if len(found) == 1 and "{}" in found[0]:
        found = [found[0].replace("{}", str(index)) for index in range(config.server_processes)]
    if len(found) != config.server_processes:
        without = "" if config.servers else "; without servers it names the chief's"
        raise ConfigError(
            f"--servers names {len(found)} addresses, but the config has {config.servers} servers{without}."
        )
    if wrong := [address for address in found if not address.rpartition(":")[2].isdecimal()]:
        raise ConfigError(f"--servers names {wrong[0]!r}; expected host:port, like 10.0.0.1:50051.")
    return found
