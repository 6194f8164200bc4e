"""Server and worker processes that train a sparse SVM again and again, so that loading code is no part of a time.

Both contenders with a server run in this: the same rows in the same shards, the same batches' size and learning rate, the
same stopwatch. It runs from the word to go, when every worker is connected and has its rows and the first weights, until the
last worker has the answer to its last push."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self
from unittest.mock import patch

import numpy as np

from benchmarks.contender import WrongResult
from paceline.core.values import Vector
from paceline.data.dataset import Labelled, Selection
from paceline.data.manifest import Recipe
from paceline.data.shard_writer import Dealt, write_shards
from paceline.launch.this_machine.child_environment import child_environment

BATCH, LEARNING_RATE = 16, 0.1
PATIENCE = 120.0
"""Longest wait for a process to do what must come next (seconds)."""


@dataclass(frozen=True)
class Job:
    """What a team is for; every process of it gets this value."""

    shards: Path
    """A folder with a shard for each worker, see `deal`."""
    workers: int = 2
    servers: int = 1
    batches: int = 16
    """Batches whose summed change makes one push."""
    overlap: bool = True
    """Whether a worker computes while a push is on its way."""
    pull: str = "changed"
    """What replies bring: see svm.pull."""
    policy: str = "asp"
    transport: str = "grpc"
    """What carries Paceline's pushes; the peers have gRPC."""


class Final(NamedTuple):
    """What a server has when all is over."""

    weights: Vector
    """Of its slice."""
    received: float = 0
    sent: float = 0
    """Bytes of places and values; 0 where nobody counts them."""


class Training(NamedTuple):
    """What came of one training."""

    seconds: float
    cpu: float
    """Seconds of all processes; of servers with what comes before the word to go."""
    weights: Vector
    received: float
    sent: float


class Serving(Protocol):
    """A server that waits for workers."""

    address: str

    def final(self) -> Final:
        """After the last push."""


Serve = Callable[[Job, int, float, str], AbstractContextManager[Serving]]
"""serve(job, server, passes, address of server 0) serves one training, until the context ends."""
Work = Callable[[Job, int, float, Sequence[str], Callable[[], None], Callable[[], None]], None]
"""work(job, rank, passes, addresses, ready, done) trains once: calls `ready`, which waits for the word to go, before the
first batch, and `done` after the last answer."""


def deal(rows: Labelled, workers: int, folder: Path) -> None:
    """Writes a shard for each worker, of rows in a new order."""
    order = np.random.default_rng(0).permutation(len(rows))
    recipe = Recipe(task="svm", strategy="random", shards=workers, validation=0, test=0, seed=0, examples="0" * 64)
    parts = [Selection(rows, np.sort(part)) for part in np.array_split(order, workers)]
    write_shards(folder, "svm", recipe, Dealt(parts), {})


class Team:
    """The processes; they end with the context. All see what `paceline run` gives its own."""

    def __init__(self, job: Job, serve: Serve, work: Work) -> None:
        self.job = job
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._servers = [self._start(_serve, job, serve, server) for server in range(job.servers)]
        self._workers = [self._start(_work, job, work, rank) for rank in range(job.workers)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
            process.join()

    def train(self, passes: float) -> Training:
        """One training with this many passes over the rows. WrongResult where a process fails or hangs."""
        addresses: list[str] = []
        for server in self._servers:
            server.send((passes, addresses[0] if addresses else ""))
            addresses.append(_heard(server))
        for worker in self._workers:
            worker.send((passes, addresses))
        for worker in self._workers:
            _heard(worker)
        start = time.perf_counter()
        for worker in self._workers:
            worker.send(None)
        cpu = sum(_heard(worker) for worker in self._workers)
        seconds = time.perf_counter() - start
        for worker in self._workers:
            _heard(worker)  # it has left
        for server in self._servers:
            server.send(None)
        used, finals = zip(*(_heard(server) for server in self._servers), strict=True)
        return Training(
            seconds,
            cpu + sum(used),
            np.concatenate([final.weights for final in finals]),
            sum(final.received for final in finals),
            sum(final.sent for final in finals),
        )

    def _start(self, run: Callable[..., None], *what: object) -> "Connection[Any, Any]":
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=run, args=(theirs, *what), daemon=True)
        with patch.dict(os.environ, child_environment(threads=1)):
            process.start()
        theirs.close()
        self._processes.append(process)
        return ours


def _heard(pipe: "Connection[Any, Any]") -> Any:
    try:
        if pipe.poll(PATIENCE):
            return pipe.recv()
    except EOFError:
        raise WrongResult("A process of the team ended early; its own message is above.") from None
    raise WrongResult(f"A process of the team did not answer within {PATIENCE:g} s.")


def _orders(pipe: "Connection[Any, Any]") -> Iterator[Any]:
    """Does what the team's process says, until that is gone."""
    while True:
        try:
            yield pipe.recv()
        except EOFError:
            return


def _serve(pipe: "Connection[Any, Any]", job: Job, serve: Serve, server: int) -> None:
    for passes, chief in _orders(pipe):
        with serve(job, server, passes, chief) as serving:
            start = time.process_time()
            pipe.send(serving.address)
            pipe.recv()
            pipe.send((time.process_time() - start, serving.final()))


def _work(pipe: "Connection[Any, Any]", job: Job, work: Work, rank: int) -> None:
    start = 0.0

    def ready() -> None:
        nonlocal start
        pipe.send("ready")
        pipe.recv()
        start = time.process_time()

    for passes, addresses in _orders(pipe):
        work(job, rank, passes, addresses, ready, lambda: pipe.send(time.process_time() - start))
        pipe.send("left")
