"""Whole servers in the test's own process, and workers without a model that push what the test says."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import Shapes, make_plan
from paceline.core.values import AS_SET, Dense, Empty, Manner, Vector
from paceline.rpc.agreed_settings import joining_settings
from paceline.rpc.auth import OPEN, Credentials
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.server.command_line import ToldServer
from paceline.server.run_servicer import RunServicer
from paceline.server.server import Server
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.surroundings import Surroundings
from tests.support.ports import own_port

PLAIN = Options(name="sgd", lr=1.0, momentum=0.0, weight_decay=0.0)
SHAPES: Shapes = (("first.weight", (20,)), ("first.bias", (5,)), ("last.weight", (15,)))
LENGTH = 40


class Said(list[tuple[str, dict[str, Any]]]):
    """What a process said."""

    def __call__(self, event: str, **facts: Any) -> None:
        self.append((event, facts))

    def has(self, words: str) -> bool:
        return any(words in event for event, _ in self)


class Context:
    """A call that is never cancelled."""

    def is_active(self) -> bool:
        return True


def config_of(policy: str | Options = "asp", workers: int = 1, servers: int = 1, **settings: Any) -> Config:
    policy = Options(name=policy) if isinstance(policy, str) else policy
    constant = {"schedule": {"lr_scale": "none"}, "batch": "worker"}
    return Config(policy=policy, workers=workers, servers=servers, optimizer=PLAIN, **(constant | settings))


def join_request(config: Config, worker: str, examples: int = 100, **more: Any) -> run_pb.JoinRequest:
    facts: dict[str, Any] = {
        "steps": 10,
        "shards": config.workers,
        "settings": joining_settings(config),
        "protocol": PROTOCOL,
    }
    return run_pb.JoinRequest(worker=worker, examples=examples, **(facts | more))


class Cluster:
    """All servers of a run; `restart` closes one and starts it again from its folder, on the same port."""

    def __init__(self, config: Config, folder: Path, credentials: Credentials = OPEN) -> None:
        self.config = config
        self.folder = folder
        self.credentials = credentials
        self.said = [Said() for _ in range(config.servers)]
        self.servers: list[Server] = []
        for index in range(config.servers):
            self.servers.append(self.begin(index, own_port()))

    @property
    def addresses(self) -> list[str]:
        return [f"localhost:{server.port}" for server in self.servers]

    @property
    def run(self) -> RunServicer:
        """The chief's service, called without gRPC."""
        assert self.servers[0].chief is not None
        return RunServicer(self.servers[0].chief, self.config)

    def restart(self, index: int) -> None:
        port = self.servers[index].port
        self.servers[index].close(grace=0)
        self.servers[index] = self.begin(index, port)

    def evaluator_ready(self) -> None:
        chief = self.servers[0].chief
        assert chief is not None
        with chief.changed:
            chief.run.ready(time.monotonic())
            chief.settle()

    def metric(self, name: str, server: int = 0, **labels: str) -> float:
        return self.servers[server].registry.get_sample_value(f"paceline_server_{name}", labels) or 0.0

    def close(self) -> None:
        for server in reversed(self.servers):
            server.close(grace=0)

    def begin(self, index: int, port: int) -> Server:
        chief = self.addresses[0] if index else ""
        folder = self.folder / f"server-{index}"
        told = ToldServer(index=index, folder=folder, chief=chief, port=port)
        server = Server(self.config, told, self.credentials, self.said[index])
        server.start()
        return server


class Pusher:
    """A worker that has joined; `train` pushes that many gradients, each `value` in every element."""

    def __init__(self, cluster: Cluster, number: int = 0, patience: float = 60.0) -> None:
        config = cluster.config
        self.name = f"worker-{number}"
        self.stop = threading.Event()
        self.said = Said()
        self.around = Surroundings(
            config=config,
            name=self.name,
            addresses=cluster.addresses,
            credentials=cluster.credentials,
            stop=self.stop,
            say=self.said,
            patience=patience,
        )
        self.chief = ChiefClient(self.around)
        self.client = ParameterClient(self.around, make_plan(SHAPES, config.servers, config.plan))
        self.model: Vector = np.zeros(LENGTH, np.float32)
        self.clock = 0
        self.view = 0

    def join(self) -> "Pusher":
        joined = self.chief.join(False, 100, 10, "", 64)
        assert joined is not None
        self.incarnation = joined.incarnation
        standings = self.client.attach(self.incarnation)
        if any(phase_of(standing) == "empty" for standing in standings):
            self.client.initialise(self.model)
        self.clock = min(standing.clock for standing in standings)
        return self

    def sit(self) -> "Pusher":
        seat = self.chief.seat(self.incarnation, self.clock)
        assert seat is not None
        self.view = seat.view
        self.client.pull(self.model)
        return self

    def push(self, value: float | None, examples: int = 1, manner: Manner = AS_SET) -> Sequence[pb.PullHead]:
        self.clock += 1
        update = Empty(LENGTH) if value is None else Dense(np.full(LENGTH, value, np.float32))
        weight = 0 if value is None else examples
        where = lambda server, head: self.model  # noqa: E731
        return self.client.begin_push(self.clock, self.view, update, weight, where, manner=manner)()


def seated(cluster: Cluster) -> list[Pusher]:
    """All workers of the run, seated."""
    cluster.evaluator_ready()
    pushers = [Pusher(cluster, index).join() for index in range(cluster.config.workers)]
    with ThreadPoolExecutor(len(pushers)) as threads:
        return list(threads.map(Pusher.sit, pushers))
