"""A whole run in separate processes, forked in a moment: its start takes a second. They work in parallel, and their links have
a known speed where that is asked for (its network.py)."""

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from prometheus_client import CollectorRegistry

from paceline.core.chief.scoring import Score
from paceline.core.settings.config import Config
from paceline.data.shards import open_shards
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.sharder.sharding import make_shards
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.module_worker import Listen, Worker
from paceline.worker.scoring.module_scorer import ModuleScorer
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import use_threads
from paceline.worker.training.status_and_metrics import Progress
from paceline.worker.training.step_result import Step
from paceline_papers.reproduce.network import Network, Traffic, traffic
from paceline_papers.reproduce.team import LOOPBACK, Team

SERVERS = "servers"
"""The node of all servers and of the evaluator; each worker's has the worker's name."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave."""

    metrics: dict[str, float]
    """Of the final score."""
    seconds: float
    """Training time."""
    history: list[Score]
    """Every score, the final one last."""


@dataclass(frozen=True, slots=True)
class Stepped:
    """One clock of a worker (seconds)."""

    lasted: float
    """From the end of the one before; of the first one, from the first computation."""
    computed: float
    waited: float
    """For the others, by the policy; of several servers, the longest."""
    staleness: int
    """Of its push (versions)."""


@dataclass(frozen=True, slots=True)
class Worked:
    """What one worker did."""

    steps: int
    seconds: float
    """In its steps."""
    idle: float
    """Of these, what it did not compute in: values were on their way, or others waited for."""
    traffic: Traffic | None
    """None: it shares the machine's link."""
    trace: list[Stepped]


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run gave, and its workers."""

    outcome: Outcome
    workers: list[Worked]
    """By rank."""


def run(config: Config, rates: Mapping[str, float] | None = None) -> Ran:
    """Trains one run to its end. `rates`: the speed of each node's link (bit/s), or None: all talk over loopback, which
    nobody counts. UsageError where links can't be emulated here; TryAgain where a process ended early."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        make_shards(config, folder / "shards")
        network = None if rates is None else stack.enter_context(Network(rates))
        team = stack.enter_context(Team({} if network is None else network.nodes))
        addresses: list[str] = []
        for index in range(config.server_processes):
            team.start(f"server-{index}", SERVERS, _serve, config, index, folder / str(index), addresses[:1])
            addresses.append(team.hear(f"server-{index}"))
        names = [f"worker-{rank}" for rank in range(config.workers)]
        for name in names:
            team.start(name, name, _work, config, name, folder / "shards", addresses)
        team.start("evaluator", SERVERS, _score, config, folder, addresses)
        workers = [team.hear(name) for name in names]
        team.hear("evaluator")
        return Ran(team.ask("server-0"), workers)


def _serve(pipe: "Connection[Any, Any]", host: str, config: Config, index: int, folder: Path, chief: list[str]) -> None:
    use_threads(1)
    server = Server(config, ToldServer(index=index, folder=folder, chief="".join(chief), bind=host))
    server.start()
    pipe.send(f"{host}:{server.port}")
    pipe.recv()
    pipe.send(_outcome_of(server))


def _outcome_of(server: Server) -> Outcome:
    """What the run of this chief gave."""
    assert server.chief is not None
    scores = list(server.chief.run.scoring.scores)
    return Outcome(scores[-1].metrics, scores[-1].seconds, scores)


def _work(
    pipe: "Connection[Any, Any]", host: str, config: Config, name: str, shards: Path, addresses: list[str]
) -> None:
    use_threads(1)
    registry = CollectorRegistry()
    around = Surroundings(config=config, name=name, addresses=addresses, registry=registry)
    worker = Worker(around, open_shards(shards), listen=Listen(host, bind=host))
    trace = _Trace(worker.progress)
    worker.run()

    idle, busy = (
        sum(registry.get_sample_value("paceline_worker_step_seconds_sum", {"phase": phase}) or 0.0 for phase in phases)
        for phases in (("exchange", "wait"), ("data", "compute"))
    )
    pipe.send(Worked(worker.progress.clock, idle + busy, idle, None if host == LOOPBACK else traffic(), trace.steps))


class _Trace:
    """Notes each step that a worker's loop reports."""

    def __init__(self, progress: Progress) -> None:
        self.steps: list[Stepped] = []
        self._computes = 0.0
        self._ended = 0.0
        self._computed, self._stepped = progress.computed, progress.stepped
        progress.computed = self.computed  # type: ignore[method-assign]
        progress.stepped = self.stepped  # type: ignore[method-assign]

    def computed(self, examples: int, seconds: float) -> None:
        self._computes += seconds
        self._ended = self._ended or time.monotonic() - seconds
        self._computed(examples, seconds)

    def stepped(
        self,
        clock: int,
        epoch: int,
        step: Step | None,
        heads: Sequence[pb.PullHead],
        alpha: float,
        pulled: float | None = None,
    ) -> None:
        now = time.monotonic()
        waited, staleness = max(head.waited for head in heads), max(head.staleness for head in heads)
        self.steps.append(Stepped(now - self._ended, self._computes, waited, staleness))
        self._computes, self._ended = 0.0, now
        self._stepped(clock, epoch, step, heads, alpha, pulled)


def _score(pipe: "Connection[Any, Any]", host: str, config: Config, folder: Path, addresses: list[str]) -> None:
    use_threads(1)
    around = Surroundings(config=config, name="evaluator", addresses=addresses)
    ModuleScorer(around, open_shards(folder / "shards"), folder / "models", "cpu").run()
    pipe.send(None)
