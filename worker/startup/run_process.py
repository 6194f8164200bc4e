"""How a worker and the evaluator begin and end: logs, signals, metrics, then shards and servers, then their own work."""

import signal
import threading
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError, Stopped
from paceline.core.settings.config import Config
from paceline.data.shards import Shards
from paceline.rpc.malloc import tune_malloc
from paceline.rpc.process import make_log, report_ports, serve_metrics, stop_on_notice, stop_on_signals
from paceline.rpc.self_inflicted import inflict_own, told_by
from paceline.worker.command_line import ToldWorker
from paceline.worker.startup.start import Start
from paceline.worker.startup.wait_for_shards import find_shards
from paceline.worker.surroundings import Surroundings


def run_process(
    start: Start[Any],
    work: Callable[[Surroundings, Shards], None],
    stopping: tuple[threading.Event, list[int]] | None = None,
    shards: Any = None,
) -> int:
    """Waits for the shards, does the work, and returns the exit code. `stopping`: what `stop_on_signals` gave, where this is
    not the main thread, in which alone signals can be caught; `shards`: those that a script brings."""
    told, config = start.told, start.config
    tune_malloc()
    if config.updates == "dense":
        from paceline.worker.training.model_and_gradient import use_threads

        use_threads(told.threads)
    say = make_log(told.name)
    stopping = stopping or stop_on_signals()
    stop, signals = stopping
    if told.report is None:  # a launcher passes on what it gets
        stop_on_notice(stopping, say)
    addresses = check_addresses(told.servers, config)
    registry = CollectorRegistry()
    guard, run = told.metrics_guard(start.credentials), config.run or ""
    port = serve_metrics(told.metrics_port, registry, told.bind, guard, run=run, process=told.name)
    report_ports(told.report, metrics_port=port)
    if told.report is None:  # there is no launcher to do it
        inflict_own(config, told.name, told_by(addresses[0], start.credentials), say)
    try:
        shards = find_shards(start, stop, say) if shards is None else shards
        around = Surroundings(
            config=config,
            name=told.name,
            addresses=addresses,
            credentials=start.credentials,
            stop=stop,
            say=say,
            registry=registry,
            host=told.host if isinstance(told, ToldWorker) else "",
            residuals=told.residuals if isinstance(told, ToldWorker) else None,
        )
        work(around, shards)
    except Stopped:
        say("stopped on request")
        return 130 if signal.SIGINT in signals else Stopped.exit_code
    return 0


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
