"""What all contenders share: the same job, the same gradient, the same stopwatch, the same proof of work.

An iteration: every worker hands over a full float32 gradient, momentum SGD with weight decay is applied to the model,
every worker holds the full new model. A contender says how its servers serve and its workers iterate; `play`
starts them as processes, lets all workers go at once, and prints one JSON line for each iteration and one at the end.
Needs no more than numpy, because it also runs in the peers' own environments.
"""

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from paceline.core.errors import PacelineError

Vector = npt.NDArray[np.float32]

LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-4
WARM_UP = 2
"""Exchanges at each start that do not count: first touch of memory, compiled loops, open connections."""
PROBES = 4096
"""Elements of the final model that are compared with the oracle, spread over all of it."""


class WrongResult(PacelineError):
    """A contender did not compute what it was timed for."""


@dataclass(frozen=True)
class Job:
    """What a contender is asked to do; every process of it gets this value."""

    elements: int
    """float32 values of the model."""
    workers: int
    servers: int
    iterations: int

    def gradient(self) -> Vector:
        """The gradient every worker pushes every time: with equal ones the result does not depend on who came first."""
        return np.random.default_rng(0).standard_normal(self.elements, dtype=np.float32)

    def cuts(self) -> list[slice]:
        """Equal parts of the model, one for each server, for peers that make no plan."""
        edges = [self.elements * server // self.servers for server in range(self.servers + 1)]
        return [slice(start, stop) for start, stop in pairwise(edges)]


class Worker(Protocol):
    """A worker process's hold on the contender under test."""

    def iterate(self, gradient: Vector) -> None:
        """Push the gradient and return when this worker holds the new model."""

    def weights(self) -> Vector:
        """The final model as this worker can read it, after every worker's last iteration."""


Serve = Callable[[Job, int, Callable[[str], None]], None]
"""serve(job, server, announce) runs one server until its process is ended; it announces its address when ready."""
Join = Callable[[Job, int, Sequence[str]], Worker]
"""join(job, rank, addresses) connects one worker."""


def nothing(job: Job, server: int, announce: object) -> None:
    """For contenders without servers."""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The options every contender understands; a contender may add its own."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--elements", type=_positive, required=True, help="float32 values of the model")
    options.add_argument("--workers", type=_positive, default=1)
    options.add_argument("--servers", type=_positive, default=1)
    options.add_argument("--iterations", type=_positive, default=7)
    return options


def job_of(arguments: argparse.Namespace) -> Job:
    """The job that parsed options describe."""
    return Job(arguments.elements, arguments.workers, arguments.servers, arguments.iterations)


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"got {text!r}; expected a whole number, 1 or more")
    return int(text)


def expected(job: Job, folds: int) -> Vector:
    """The oracle: the probed elements after this many folds of the gradient, in float64."""
    gradient = job.gradient()[probes(job)].astype(np.float64)
    weights, velocity = np.zeros_like(gradient), np.zeros_like(gradient)
    for _ in range(folds):
        velocity = MOMENTUM * velocity + gradient + WEIGHT_DECAY * weights
        weights -= LEARNING_RATE * velocity
    return weights.astype(np.float32)


def probes(job: Job) -> npt.NDArray[np.int64]:
    """Indices of the elements that are compared, both ends included."""
    return np.linspace(0, job.elements - 1, min(job.elements, PROBES)).astype(np.int64)


def verify(job: Job, weights: Vector, folds: int, tolerance: float) -> None:
    """WrongResult where the model is not what `folds` steps of SGD give, within `tolerance` of its largest value."""
    if weights.shape != (job.elements,):
        raise WrongResult(f"The worker holds {weights.shape} values, the model has {job.elements:,}; check its slices.")
    wanted, found = expected(job, folds), weights[probes(job)]
    worst = int(np.argmax(np.nan_to_num(np.abs(found - wanted), nan=np.inf)))
    if not abs(found[worst] - wanted[worst]) <= tolerance * np.abs(wanted).max():
        raise WrongResult(
            f"Element {probes(job)[worst]:,} is {found[worst]:.6g} after {folds} folds, expected {wanted[worst]:.6g}: "
            "this contender lost, repeated or misplaced an update, so its times mean nothing."
        )


def play(
    job: Job, serve: Serve, join: Join, *, servers: int, workers: int, folds: int, tolerance: float = 1e-4
) -> None:
    """Run the job with this many server and worker processes on this machine and print its measurements.

    `folds` is how often the gradient is in the final model: workers x exchanges where each push is folded by itself,
    exchanges where a round is folded as one mean.
    """
    context = multiprocessing.get_context("spawn")
    processes: list[SpawnProcess] = []
    try:
        doors = [_start(context, processes, _serve, job, serve, server) for server in range(servers)]
        addresses = [_hear(door, f"server {server}") for server, door in enumerate(doors)]
        seats = [_start(context, processes, _work, job, join, rank, addresses) for rank in range(workers)]
        _conduct(job, processes, seats)
        seats[0].send((folds, tolerance))
        complaint = _hear(seats[0], "worker 0, asked for its final weights,")
        if complaint:
            raise WrongResult(complaint)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.join()


def _start(
    context: SpawnContext,
    processes: list[SpawnProcess],
    run: Callable[..., None],
    *what: object,
) -> "Connection[Any, Any]":
    """A daemon process of the contender, and our end of the pipe it reports on."""
    ours, theirs = context.Pipe()
    process = context.Process(target=run, args=(theirs, *what), daemon=True)
    process.start()
    theirs.close()
    processes.append(process)
    return ours


def _hear(pipe: "Connection[Any, Any]", who: str) -> Any:
    try:
        return pipe.recv()
    except EOFError:
        raise WrongResult(f"The process of {who} ended early; its own message is above.") from None


def _conduct(job: Job, processes: Sequence[SpawnProcess], seats: Sequence["Connection[Any, Any]"]) -> None:
    """All workers start an iteration together; it took as long as the slowest of them."""
    for rank, seat in enumerate(seats):
        _hear(seat, f"worker {rank}")
    warm = min(WARM_UP, job.iterations - 1)
    for iteration in range(job.iterations):
        if iteration == warm:
            before = usage(processes)
        for seat in seats:
            seat.send(None)
        times = [_hear(seat, f"worker {rank}") for rank, seat in enumerate(seats)]
        print(json.dumps({"iteration": iteration, "seconds": max(times)}), flush=True)
    seconds, faults = (after - start for after, start in zip(usage(processes), before, strict=True))
    gigabytes = 8 * job.elements * job.workers * (job.iterations - warm) / 1e9
    print(
        json.dumps(
            {
                "cpu_seconds": round(seconds, 2),
                "cpu_seconds_per_gb": round(seconds / gigabytes, 3),
                "minor_faults_per_gb": round(faults / gigabytes, 1),
            }
        ),
        flush=True,
    )


def usage(processes: Sequence[SpawnProcess]) -> tuple[float, float]:
    """(CPU seconds, minor page faults) of the processes and of those that they have started, so far; Linux only."""
    ticks, faults = 0, 0
    waiting = [process.pid for process in processes]
    while waiting:
        place = Path(f"/proc/{waiting.pop()}")
        with suppress(OSError):  # a child that has ended
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            faults += int(fields[7])
            ticks += int(fields[11]) + int(fields[12])
            for thread in (place / "task").iterdir():
                waiting += map(int, (thread / "children").read_text().split())
    return ticks / os.sysconf("SC_CLK_TCK"), faults


def _serve(pipe: "Connection[Any, Any]", job: Job, serve: Serve, server: int) -> None:
    serve(job, server, pipe.send)


def _work(pipe: "Connection[Any, Any]", job: Job, join: Join, rank: int, addresses: Sequence[str]) -> None:
    """A worker process: wait for the word, iterate, report the seconds; at the end one of them is asked for proof."""
    gradient = job.gradient()
    worker = join(job, rank, addresses)
    pipe.send("ready")
    for _ in range(job.iterations):
        pipe.recv()
        start = time.perf_counter()
        worker.iterate(gradient)
        pipe.send(time.perf_counter() - start)
    folds, tolerance = pipe.recv()
    try:
        verify(job, worker.weights(), folds, tolerance)
        pipe.send("")
    except WrongResult as error:
        pipe.send(str(error))
