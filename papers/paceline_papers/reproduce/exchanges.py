"""What servers and links let through: real processes push a gradient that is given and receive weights, as fast as they can."""

import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from paceline.core.settings.config import Config
from paceline.core.slice.plan import Shapes, make_plan
from paceline.core.values import Dense, Vector
from paceline.rpc.malloc import tune_malloc
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.surroundings import Surroundings
from paceline_papers.reproduce.network import Network
from paceline_papers.reproduce.team import Team

FOREVER = 3600.0
"""For a run that is ended from outside (seconds)."""
BEFORE = 2
"""Pushes of each worker that are not measured."""


class Pusher:
    """A worker's links to all servers, seated in the run, without anything to compute. One call at a time."""

    def __init__(self, around: Surroundings, shapes: Shapes, rank: int, first: Vector) -> None:
        """`first`: the flat model that training begins with; it becomes `model`."""
        config = around.config
        chief = ChiefClient(around)
        if rank == 0:  # replaces the evaluator, without which no run starts
            threading.Thread(target=chief.evaluate, args=(None,), daemon=True).start()
        self.model = first
        self._client = ParameterClient(around, make_plan(shapes, config.servers, config.plan))
        joined = chief.join(False, 1, 1, "", config.workers)
        assert joined is not None
        self._clock = 0
        threading.Thread(target=self._beat, args=(chief, joined.incarnation, config.heartbeat), daemon=True).start()
        self._client.attach(joined.incarnation)
        if joined.seat == 0:
            self._client.initialise(self.model)
        seat = chief.seat(joined.incarnation, 0)
        assert seat is not None
        self.pull()
        self._view = seat.view

    def push(self, gradient: Vector) -> None:
        """One clock: pushes the gradient; the answer's weights are in `model` then."""
        self._clock += 1
        self._client.push_pull(self._clock, self._view, Dense(gradient), 1, lambda server, head: self.model)

    def pull(self) -> None:
        """Receives the newest weights into `model`."""
        self._client.pull(self.model)

    def _beat(self, chief: ChiefClient, incarnation: int, every: float) -> None:
        while True:
            chief.beat(incarnation, self._clock, "exchange", 0.0, {})
            time.sleep(every)


@dataclass(frozen=True, slots=True)
class Load:
    """What is measured."""

    config: Config
    shapes: Shapes
    pause: float
    """Seconds that a worker computes between two pushes, by a pause: the mean, which `seed` varies by a fifth."""
    seed: int
    pushes: int
    """What each worker makes at least while it is measured, which begins when all have made `BEFORE`."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What came out."""

    steps: float
    """Pushes of all workers together (1/s)."""
    cores: float
    """CPU time of all processes over time: how many cores they kept busy."""


def server_node(index: int) -> str:
    """The network node of a server."""
    return f"server-{index}"


def worker_node(rank: int) -> str:
    """The network node of a worker."""
    return f"worker-{rank}"


def measure(load: Load, rates: Mapping[str, float]) -> Measured:
    """Throughput of free-running workers. `rates`: the speed of each node's link (bit/s). UsageError where links can't be
    emulated here; TryAgain where a process ended early."""
    config = load.config
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="paceline-exchanges-")))
        network = stack.enter_context(Network(rates))
        team = stack.enter_context(Team(network.nodes))
        addresses: list[str] = []
        servers = [server_node(index) for index in range(config.servers)]
        for index, name in enumerate(servers):
            team.start(name, name, _serve, config, index, folder / name, addresses[:1])
            addresses.append(team.hear(name))
        workers = [worker_node(rank) for rank in range(config.workers)]
        for rank, name in enumerate(workers):
            team.start(name, name, _work, load, rank, addresses)
        for name in workers:
            team.hear(name)  # it has made those before
        before, begun = _spent(team, servers), time.monotonic()
        for name in workers:
            team.hear(name)  # it has made enough
        for name in workers:
            team.tell(name)
        told = [team.hear(name) for name in workers]
        seconds, spent = time.monotonic() - begun, _spent(team, servers) - before + sum(cpu for _, cpu in told)
    return Measured(sum(_rate(stamps) for stamps, _ in told), spent / seconds)


def _rate(stamps: Sequence[float]) -> float:
    """Steps a second of one worker, since the last push before was answered."""
    return (len(stamps) - BEFORE) / (stamps[-1] - stamps[BEFORE - 1])


def _spent(team: Team, servers: Sequence[str]) -> float:
    """CPU seconds of the servers so far."""
    return sum(float(team.ask(name)) for name in servers)


def _serve(pipe: "Connection[Any, Any]", host: str, config: Config, index: int, folder: Path, chief: list[str]) -> None:
    """A server; says its address, then its CPU seconds whenever it is asked."""
    tune_malloc()
    server = Server(config, ToldServer(index=index, folder=folder, chief="".join(chief), bind=host))
    server.start()
    pipe.send(f"{host}:{server.port}")
    while True:
        pipe.recv()
        pipe.send(time.process_time())


def _work(pipe: "Connection[Any, Any]", host: str, load: Load, rank: int, addresses: Sequence[str]) -> None:
    """A worker; says when it has made those before and those it must; at the end when each was answered, and its CPU seconds
    since those before."""
    tune_malloc()
    around = Surroundings(config=load.config, name=worker_node(rank), addresses=addresses, patience=FOREVER)
    total = make_plan(load.shapes, load.config.servers, load.config.plan).total
    gradient = np.random.default_rng(load.seed).standard_normal(total, dtype=np.float32)
    pusher, draw = Pusher(around, load.shapes, rank, np.zeros(total, np.float32)), Random(f"{load.seed} {rank}")
    stamps: list[float] = []
    while not pipe.poll():
        time.sleep(load.pause * draw.uniform(0.8, 1.2))
        pusher.push(gradient)
        stamps.append(time.monotonic())
        if len(stamps) == BEFORE:
            spent = time.process_time()
        if len(stamps) in (BEFORE, BEFORE + load.pushes):
            pipe.send(None)
    pipe.send((stamps, time.process_time() - spent))
