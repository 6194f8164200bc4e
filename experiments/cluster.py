"""A whole run in one process: real servers, workers and evaluator as threads that talk over gRPC on loopback. Starting it
takes a second, so that a hundred runs can be compared; what the workers compute in is emulated by pauses."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from paceline.core.run.scoring import Score
from paceline.core.settings.config import Config
from paceline.data.shards import open_shards
from paceline.rpc.auth import OPEN
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.sharder.sharding import make_shards
from paceline.worker.module_worker import Worker
from paceline.worker.scoring.module_scorer import ModuleScorer
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import use_threads

PATIENCE = 600.0
"""Longest time for one run (seconds)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    metrics: dict[str, float]
    """Of the final score."""
    seconds: float
    """Training time."""
    waiting: float
    """Mean over the workers of the time that their replies waited (seconds)."""
    staleness: float
    """Mean over all pushes (versions)."""
    history: list[Score]
    """Every score, the final one last."""


def run(config: Config, meanwhile: Callable[[Server], None] | None = None) -> Outcome:
    """Trains one run to its end. `meanwhile` is called with the chief's server once all have started, in this thread."""
    use_threads(1)
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_shards(config, folder / "shards")
        servers = _servers(config, folder)
        try:
            workers = _work(config, folder, [f"127.0.0.1:{server.port}" for server in servers])
            if meanwhile is not None:
                meanwhile(servers[0])
            for thread in workers:
                thread.join(PATIENCE)
                if thread.is_alive():
                    raise TimeoutError(f"{thread.name} has not ended after {PATIENCE:g} s: {config.policy}.")
            return outcome_of(servers[0])
        finally:
            for server in reversed(servers):
                server.close(grace=0)


def _servers(config: Config, folder: Path) -> list[Server]:
    servers: list[Server] = []
    for index in range(config.server_processes):
        chief = f"127.0.0.1:{servers[0].port}" if index else ""
        server = Server(config, ToldServer(index=index, folder=folder / f"server-{index}", chief=chief), OPEN, silent)
        server.start()
        servers.append(server)
    return servers


def _work(config: Config, folder: Path, addresses: list[str]) -> list[threading.Thread]:
    """Starts workers and evaluator; they are built one after the other, since first weights come from torch's one
    global generator."""
    stop, shards = threading.Event(), folder / "shards"

    def around(name: str) -> Surroundings:
        return Surroundings(config=config, name=name, addresses=addresses, stop=stop)

    workers = [Worker(around(f"worker-{rank}"), open_shards(shards)) for rank in range(config.workers)]
    scorer = ModuleScorer(around("evaluator"), open_shards(shards), folder / "models", "cpu")
    threads = [threading.Thread(target=worker.run, name=worker.name, daemon=True) for worker in workers]
    threads.append(threading.Thread(target=scorer.run, name="evaluator", daemon=True))
    for thread in threads:
        thread.start()
    return threads


def outcome_of(server: Server) -> Outcome:
    """What the run of this chief gave."""
    assert server.chief is not None
    run = server.chief.run
    figures = [report.figures for report in run.workers.reports.values()]
    registry = server.registry
    pushes = registry.get_sample_value("paceline_server_staleness_count") or 1.0
    return Outcome(
        run.scoring.scores[-1].metrics,
        run.scoring.scores[-1].seconds,
        mean(found.get("wait_seconds", 0.0) for found in figures),
        (registry.get_sample_value("paceline_server_staleness_sum") or 0.0) / pushes,
        list(run.scoring.scores),
    )


def silent(event: str, **facts: Any) -> None:
    """What a process says is for nobody here."""
