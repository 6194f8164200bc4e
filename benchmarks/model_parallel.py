"""Layer-wise model parallelism as [Actors] draws it, against data parallelism with memorywise slices: time and bytes of a step.

An MLP is trained on the same mini-batches from the same first weights in five ways, in turn, and all must end with the same
model: by one process; with its layers in two processes, of which each hands activations on and gradients back, for the whole
mini-batch at once, in four parts so that both have work at the same time, or example by example as [Actors] does; and by two
workers, each with half of the mini-batch, against two servers with memorywise slices on the lane, in lock-step. Then the bound
that the largest part sets, for layers against memorywise slices. Run: python -m benchmarks.model_parallel"""

import argparse
import multiprocessing
import os
import tempfile
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.contender import LEARNING_RATE, MOMENTUM, WEIGHT_DECAY, Job, Vector, WrongResult
from benchmarks.peers import paceline
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Options, PlanConfig
from paceline.core.slice.plan import make_plan
from paceline.rpc.malloc import MALLOC_ENVIRONMENT
from paceline_papers.reproduce.layouts import LAYOUTS, Shapes

ALONE, WHOLE, PIPED, SINGLE, DATA = (
    "one process",
    "layers, whole mini-batches",
    "layers, mini-batches in 4 parts",
    "layers, example by example",
    "2 workers, memorywise slices",
)
MOST_SINGLE = 64
"""Examples of a mini-batch beyond which these are not sent one by one, which would take minutes."""
STAGES, SERVERS = 2, 4
"""Processes that the layers are in; servers that the bound is of."""
BATCHES = 4
"""Different mini-batches, which take turns."""
WARM_UP = 5
"""Steps at each start that do not count."""
ORACLE: Shapes = [("a", (10,)), ("b", (90,)), ("c", (3,)), ("d", (4,))]
"""The example of docs/choose/without-servers.md."""
Matrix = npt.NDArray[np.float32]
Pipe = Connection  # both ends of a pair of sockets


class Net(NamedTuple):
    """What is trained: an MLP of these widths with ReLUs, softmax and cross entropy."""

    widths: tuple[int, ...]
    batch: int
    """Examples of a step, all processes together."""

    @property
    def elements(self) -> int:
        return sum((a + 1) * b for a, b in pairwise(self.widths))

    def first_weights(self) -> Vector:
        random = np.random.default_rng(0)
        layers = [(random.standard_normal((a, b), np.float32) * (2 / a) ** 0.5, b) for a, b in pairwise(self.widths)]
        return np.concatenate([part for drawn, b in layers for part in (drawn.ravel(), np.zeros(b))]).astype(np.float32)

    def batches(self) -> list[tuple[Matrix, npt.NDArray[np.int64]]]:
        """Inputs and labels of the mini-batches."""
        random = np.random.default_rng(1)
        return [
            (
                random.standard_normal((self.batch, self.widths[0]), np.float32) / np.float32(8),
                random.integers(0, self.widths[-1], self.batch),
            )
            for _ in range(BATCHES)
        ]

    def cuts(self) -> tuple[int, ...]:
        """The layers that stages begin with, and the end: neighbours together, parameters as equal as layers allow."""
        ends = np.cumsum([(a + 1) * b for a, b in pairwise(self.widths)])
        inner = [int(np.argmin(np.abs(ends - self.elements * stage / STAGES))) + 1 for stage in range(1, STAGES)]
        return 0, *inner, len(ends)


NETS = {
    "small": Net((64, 128, 10), 32),
    "medium": Net((784, 1024, 1024, 10), 64),
    "medium, large mini-batches": Net((784, 1024, 1024, 10), 1024),
}


class Layers:
    """Neighbouring layers, weights and gradient in a vector each. What several forward passes saw is kept until their
    backward passes, in order. Not thread-safe."""

    def __init__(self, widths: Sequence[int], weights: Vector, is_end: bool) -> None:
        self.weights = weights
        self.gradient = np.zeros_like(weights)
        self._is_end = is_end
        self._seen = deque[list[Matrix]]()
        self._places = list[tuple[slice, tuple[int, int], slice]]()
        start = 0
        for a, b in pairwise(widths):
            self._places.append((slice(start, start + a * b), (a, b), slice(start + a * b, start + a * b + b)))
            start += a * b + b

    def forward(self, inputs: Matrix) -> Matrix:
        """(examples, first width) to (examples, last width)."""
        seen = [inputs]
        for number, (matrix, shape, bias) in enumerate(self._places, start=1):
            outputs = seen[-1] @ self.weights[matrix].reshape(shape) + self.weights[bias]
            if not (self._is_end and number == len(self._places)):
                np.maximum(outputs, 0, out=outputs)
            seen.append(outputs)
        self._seen.append(seen)
        return seen[-1]

    def backward(self, slopes: Matrix, wants_inputs: bool) -> Matrix | None:
        """Adds to the gradient; the loss's slopes at the outputs to those at the inputs, where anybody wants them."""
        seen = self._seen.popleft()
        for number, (matrix, shape, bias) in reversed(list(enumerate(self._places))):
            if not (self._is_end and number == len(self._places) - 1):
                slopes = slopes * (seen[number + 1] > 0)
            self.gradient[matrix] += (seen[number].T @ slopes).ravel()
            self.gradient[bias] += slopes.sum(axis=0)
            if number == 0 and not wants_inputs:
                return None
            slopes = slopes @ self.weights[matrix].reshape(shape).T
        return slopes


def loss_slopes(outputs: Matrix, labels: npt.NDArray[np.int64], count: int) -> Matrix:
    """Of the mean cross entropy over `count` examples, of which these are some."""
    odds = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    slopes: Matrix = odds / odds.sum(axis=1, keepdims=True)
    slopes[np.arange(len(labels)), labels] -= 1
    return slopes / np.float32(count)


class Stepper:
    """The optimizer that servers have in the data parallel run."""

    def __init__(self, layers: Layers) -> None:
        self._layers = layers
        self._done = 0
        self._optimizer = build_optimizer(
            Options(name="sgd", lr=LEARNING_RATE, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
        )
        self._slots = self._optimizer.new_slots(len(layers.weights))

    def step(self) -> None:
        mine = self._layers
        self._done += 1
        self._optimizer.step(mine.weights, mine.weights, mine.gradient, 1.0, LEARNING_RATE, self._slots, self._done)
        mine.gradient[:] = 0


class Stage:
    """Some of the layers in their own process."""

    def __init__(
        self, net: Net, number: int, stages: int, parts: int, before: Pipe | None, behind: Pipe | None
    ) -> None:
        """`parts`: messages that a mini-batch is cut into; `before`, `behind`: the stages around."""
        cuts = net.cuts() if stages > 1 else (0, len(net.widths) - 1)
        widths = [net.widths[: cut + 1] for cut in cuts[number : number + 2]]
        start, stop = (Net(each, 0).elements for each in widths)
        own = net.widths[cuts[number] : cuts[number + 1] + 1]
        self.layers = Layers(own, net.first_weights()[start:stop].copy(), behind is None)
        self._stepper = Stepper(self.layers)
        self._net = net
        self._parts = parts
        self._ahead = stages - 1 - number
        self._before = before
        self._behind = behind
        each = net.batch // parts
        self._inputs, self._slopes = (np.empty((each, width), np.float32) for width in (own[0], own[-1]))
        self._sender = ThreadPoolExecutor(1)
        """Otherwise two stages that send more than a pipe holds would wait for each other."""
        self.sent = 0
        """Bytes."""

    def iterate(self, inputs: Matrix, labels: npt.NDArray[np.int64]) -> None:
        """One step; a stage is as many parts ahead as there are stages behind it, so that all of them have work (1F1B)."""
        each = self._net.batch // self._parts
        for part in range(self._parts):
            rows = slice(part * each, (part + 1) * each)
            outputs = self.layers.forward(inputs[rows] if self._before is None else self._received())
            if self._behind is None:
                self._back(loss_slopes(outputs, labels[rows], self._net.batch))
                continue
            self._send(self._behind, outputs)
            if part >= self._ahead:
                self._back(self._answered())
        for _ in range(min(self._ahead, self._parts)):
            self._back(self._answered())
        self._stepper.step()

    def _received(self) -> Matrix:
        assert self._before is not None
        inputs = np.empty_like(self._inputs)
        self._before.recv_bytes_into(inputs.data.cast("B"))
        return inputs

    def _answered(self) -> Matrix:
        assert self._behind is not None
        self._behind.recv_bytes_into(self._slopes.data.cast("B"))
        return self._slopes

    def _back(self, slopes: Matrix) -> None:
        found = self.layers.backward(slopes, self._before is not None)
        if self._before is not None and found is not None:
            self._send(self._before, found)

    def _send(self, to: Pipe, values: Matrix) -> None:
        self._sender.submit(to.send_bytes, np.ascontiguousarray(values).data)
        self.sent += values.nbytes


class DataWorker(paceline.PacelineWorker):
    """A worker with the whole model and its part of each mini-batch."""

    def __init__(self, options: paceline.Options, net: Net, job: Job, rank: int, addresses: Sequence[str]) -> None:
        self._net = net
        self._job = job
        self._rank = rank
        super().__init__(options, job, rank, addresses)
        self.layers = Layers(net.widths, self._pusher.model, True)
        self.sent = 0

    def first_weights(self, elements: int) -> Vector:
        return self._net.first_weights()

    def step(self, inputs: Matrix, labels: npt.NDArray[np.int64]) -> None:
        share = self._net.batch // self._job.workers
        rows = slice(self._rank * share, (self._rank + 1) * share)
        self.layers.gradient[:] = 0
        self.layers.backward(loss_slopes(self.layers.forward(inputs[rows]), labels[rows], share), False)
        self.iterate(self.layers.gradient)
        self.sent += 2 * self.layers.gradient.nbytes  # there, and the weights back


class Figures(NamedTuple):
    """What one start gave."""

    seconds: float
    """Of a step."""
    sent: int
    """Bytes of a step, between all processes."""
    weights: Vector


def played(pipe: Pipe, step: Callable[[Matrix, Any], None], holder: "Stage | DataWorker", net: Net, steps: int) -> None:
    """In a process that computes: warm up, wait for the word, train, report."""
    batches = net.batches()
    for number in range(WARM_UP):
        step(*batches[number % BATCHES])
    pipe.send(None)
    pipe.recv()
    holder.sent = 0
    start = perf_counter()
    for number in range(WARM_UP, WARM_UP + steps):
        step(*batches[number % BATCHES])
    pipe.send((perf_counter() - start, holder.sent, holder.layers.weights))


def _stage(pipe: Pipe, net: Net, number: int, stages: int, parts: int, steps: int, ends: Sequence[Pipe | None]) -> None:
    stage = Stage(net, number, stages, parts, *ends)
    try:
        played(pipe, stage.iterate, stage, net, steps)
    except Exception:
        traceback.print_exc()
        os._exit(1)  # without waiting for what is still being sent: the others learn of it by the end of the pipes


def _worker(
    pipe: Pipe, options: paceline.Options, net: Net, job: Job, rank: int, steps: int, at: Sequence[str]
) -> None:
    worker = DataWorker(options, net, job, rank, at)
    played(pipe, worker.step, worker, net, steps)


def _server(pipe: Pipe, options: paceline.Options, job: Job, index: int) -> None:
    paceline.serve(options, job, index, pipe.send)


class Crew:
    """Processes of one start, ended with it; a context."""

    def __init__(self) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._processes: list[BaseProcess] = []

    def __enter__(self) -> "Crew":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        for process in self._processes:
            process.join()

    def start(self, work: Callable[..., None], *what: object) -> Pipe:
        """A process, and our end of the pipe that it reports on."""
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, *what), daemon=True)
        process.start()
        theirs.close()
        self._processes.append(process)
        return ours

    def pairs(self, count: int) -> Iterator[tuple[Pipe, Pipe]]:
        return (self._context.Pipe() for _ in range(count))


def gathered(seats: Sequence[Pipe]) -> list[tuple[float, int, Vector]]:
    """All begin together; what each of them reports."""
    for seat in seats:
        seat.recv()
    for seat in seats:
        seat.send(None)
    return [seat.recv() for seat in seats]


def by_layers(net: Net, stages: int, parts: int, steps: int) -> Figures:
    """The model in a row of processes, every mini-batch in this many messages."""
    with Crew() as crew:
        between = [end for pair in crew.pairs(stages - 1) for end in pair]
        ends: list[Pipe | None] = [None, *between, None]
        seats = [
            crew.start(_stage, net, number, stages, parts, steps, ends[2 * number : 2 * number + 2])
            for number in range(stages)
        ]
        for end in between:
            end.close()  # or a stage would wait forever for one that has failed
        found = gathered(seats)
    seconds, sent, weights = zip(*found, strict=True)
    return Figures(max(seconds) / steps, sum(sent) // steps, np.concatenate(weights))


def by_data(net: Net, workers: int, servers: int, steps: int) -> Figures:
    """Whole models in workers, memorywise slices on servers, on the lane and in lock-step."""
    job = Job(net.elements, workers, servers, WARM_UP + steps)
    with tempfile.TemporaryDirectory() as folder, Crew() as crew:
        options = paceline.Options("bsp", "none", "lane", Path(folder), False)
        doors = [crew.start(_server, options, job, index) for index in range(servers)]
        addresses = [door.recv() for door in doors]
        found = gathered([crew.start(_worker, options, net, job, rank, steps, addresses) for rank in range(workers)])
    seconds, sent, weights = zip(*found, strict=True)
    return Figures(max(seconds) / steps, sum(sent) // steps, weights[0])


def measure(net: Net, steps: int, rounds: int) -> dict[str, list[Figures]]:
    """Every way, in turn, this many times. WrongResult where one ends with another model than one process does."""
    ways: dict[str, Callable[[int], Figures]] = {
        ALONE: partial(by_layers, net, 1, 1),
        WHOLE: partial(by_layers, net, STAGES, 1),
        PIPED: partial(by_layers, net, STAGES, 4),
        SINGLE: partial(by_layers, net, STAGES, net.batch),
        DATA: partial(by_data, net, 2, 2),
    }
    if net.batch > MOST_SINGLE:
        del ways[SINGLE]
    found: dict[str, list[Figures]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            found[name].append(way(steps))
            check(name, found[name][-1].weights, found[ALONE][-1].weights)
    return found


def check(name: str, weights: Vector, wanted: Vector) -> None:
    """WrongResult where they differ by more than rounding."""
    apart = float(np.abs(weights - wanted).max())
    if not apart <= 1e-3 * float(np.abs(wanted).max()):
        raise WrongResult(f"'{name}' ends {apart:.3g} away from the model of {ALONE}, so its times mean nothing.")


def bounds(shapes: Shapes, alignment: int = 16) -> dict[str, float]:
    """Slices -> how many times faster than one server this many can be at most: the whole over the largest slice."""
    return {
        slices: SERVERS / make_plan(shapes, SERVERS, PlanConfig(slices=slices, alignment=alignment)).imbalance
        for slices in ("layerwise", "memorywise")
    }


def main() -> None:
    """Prints the figures of one run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60, help="steps of each start")
    parser.add_argument("--rounds", type=int, default=5, help="starts of each way")
    told = parser.parse_args()
    # one thread for each process
    os.environ.update(MALLOC_ENVIRONMENT | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
    for name, net in NETS.items():
        title = f"{name}: {'-'.join(map(str, net.widths))}, {net.elements:,} parameters, batch {net.batch}"
        print(f"{title:64}{'ms/step':>9}{'best':>9}{'kB/step':>10}")
        for way, figures in measure(net, told.steps, told.rounds).items():
            times = [1e3 * each.seconds for each in figures]
            print(f"  {way:62}{median(times):9.2f}{min(times):9.2f}{figures[0].sent / 1e3:10,.0f}", flush=True)
    print(f"{f'at most N times one of {SERVERS} servers':64}{'layerwise':>14}{'memorywise':>14}")
    for name, shapes, alignment in (
        ("layers of 10, 90, 3 and 4 values", ORACLE, 1),
        *((name, make(), 16) for name, make in LAYOUTS.items()),
    ):
        print(f"  {name:62}" + "".join(f"{value:14.2f}" for value in bounds(shapes, alignment).values()))


if __name__ == "__main__":
    main()
