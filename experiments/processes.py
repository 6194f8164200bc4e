"""A whole run in separate processes, forked in a moment. They work in parallel, and their links have a known speed where that
is asked for (experiments/network.py)."""

import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

from prometheus_client import CollectorRegistry

from experiments.cluster import PATIENCE, Outcome, outcome_of
from experiments.network import Network, Node, Traffic, traffic
from paceline.core.errors import TryAgain
from paceline.core.settings.config import Config
from paceline.data.shards import open_shards
from paceline.local.end_with_parent import end_with
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.sharder.sharding import make_shards
from paceline.worker.module_worker import Worker
from paceline.worker.scoring.module_scorer import ModuleScorer
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.model_and_gradient import use_threads

LOOPBACK = "127.0.0.1"
SERVERS = "servers"
"""The node of all servers and of the evaluator; each worker's has the worker's name."""


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


@dataclass(frozen=True, slots=True)
class Ran:
    """What one run gave."""

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
        team = stack.enter_context(_Team({} if network is None else network.nodes))
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


class _Team:
    """Processes, each at the node it belongs to; none is left after the block."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = nodes
        self._members = dict[str, tuple[ForkServerProcess, "Connection[Any, Any]"]]()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["experiments.warm"])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _pipe in self._members.values():
            process.kill()
        for process, pipe in self._members.values():
            process.join()
            pipe.close()

    def start(self, name: str, node: str, main: Callable[..., None], *what: object) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_live, args=(theirs, self._nodes.get(node), main, *what), name=name)
        process.start()
        theirs.close()
        self._members[name] = (process, ours)

    def hear(self, name: str) -> Any:
        """What the process says next."""
        pipe = self._members[name][1]
        try:
            if pipe.poll(PATIENCE):
                return pipe.recv()
            why = f"has said nothing for {PATIENCE:g} s; make the run shorter"
        except EOFError:
            why = "ended early; its own message is above"
        raise TryAgain(f"The process {name} {why}.")

    def ask(self, name: str) -> Any:
        """Its answer."""
        self._members[name][1].send(None)
        return self.hear(name)


def _live(pipe: "Connection[Any, Any]", node: Node | None, main: Callable[..., None], *what: object) -> None:
    """One process, from its first moment on. Ends without waiting for threads that wait in calls."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that will end this one
    end_with(os.getppid())
    code = 1
    try:
        if node is not None:
            node.enter()
        use_threads(1)
        main(pipe, LOOPBACK if node is None else node.address, *what)
        code = 0
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(code)


def _serve(pipe: "Connection[Any, Any]", host: str, config: Config, index: int, folder: Path, chief: list[str]) -> None:
    server = Server(config, ToldServer(index=index, folder=folder, chief="".join(chief)))
    server.start()
    pipe.send(f"{host}:{server.port}")
    pipe.recv()
    pipe.send(outcome_of(server))


def _work(
    pipe: "Connection[Any, Any]", host: str, config: Config, name: str, shards: Path, addresses: list[str]
) -> None:
    registry = CollectorRegistry()
    around = Surroundings(config=config, name=name, addresses=addresses, registry=registry)
    worker = Worker(around, open_shards(shards), listen=(host, 0))
    worker.run()

    idle, busy = (
        sum(registry.get_sample_value("paceline_worker_step_seconds_sum", {"phase": phase}) or 0.0 for phase in phases)
        for phases in (("exchange", "wait"), ("data", "compute"))
    )
    pipe.send(Worked(worker.progress.clock, idle + busy, idle, None if host == LOOPBACK else traffic()))


def _score(pipe: "Connection[Any, Any]", host: str, config: Config, folder: Path, addresses: list[str]) -> None:
    around = Surroundings(config=config, name="evaluator", addresses=addresses)
    ModuleScorer(around, open_shards(folder / "shards"), folder / "models", "cpu").run()
    pipe.send(None)
