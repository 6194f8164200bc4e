"""A training in virtual time with servers: what workers push, and what they do with the answers."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import partial

import numpy as np

from paceline.core import kernels
from paceline.core.values import Base, Dense, Empty, Outcome, Reply, Update, Vector
from paceline.data.dataset import Rows
from paceline_studies.simulator.problem import PARTS, Problem
from paceline_studies.simulator.worker import Worker
from paceline_studies.simulator.workers import Training


def gradient_of(problem: Problem, worker: Worker, rows: Rows, local: Vector) -> Vector:
    """Of these examples of the worker's at `local`, clipped, with the worker's own momentum."""
    inputs, labels = problem.shards[worker.rank]
    gradient = problem.net.gradient(local, inputs[rows], labels[rows])
    worker.clip.hold([gradient])
    if worker.half is not None:
        worker.half.look_ahead(gradient, local)
    return gradient


class Served(Training):
    """As worker/training/between_pushes.py and worker/training/training_loop.py, with or without gradients."""

    def _begin(self, worker: Worker) -> None:
        policy, time, examples = worker.policy, 0.0, 0
        worker.gradient, first = None, worker.clock * policy.most_steps
        for position in range(first + 1, first + policy.local_steps(self.pace.speed(worker.rank)) + 1):
            count, seconds = self._compute(worker, position)
            time, examples = time + seconds, examples + count
            if count:
                self._step(worker, position, count)
        worker.computes_until = self.time.now + time
        self.time.after(time, partial(self._computed, worker, worker.incarnation, examples))

    def _computed(self, worker: Worker, incarnation: int, examples: int) -> None:
        if incarnation == worker.incarnation:
            worker.clock += 1
            updates = self._updates(worker, examples)
            self._exchange(worker, updates, examples)

    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        for number, reply, values in replies:
            self._mix(worker, number, reply, values)
            if worker.policy.pulls(worker.clock):
                worker.bases[number] = Base(reply.term, reply.weights.version)

    @abstractmethod
    def _step(self, worker: Worker, position: int, count: int) -> None:
        """What the worker does with that many examples of a mini-batch."""

    @abstractmethod
    def _updates(self, worker: Worker, examples: int) -> Sequence[Update]:
        """What it pushes to each server; `examples`: behind it."""

    @abstractmethod
    def _mix(self, worker: Worker, number: int, reply: Reply, values: Vector) -> None:
        """What it does with a server's answer and the weights in it."""


class Computed(Served):
    """With gradients."""

    data: Problem

    def _step(self, worker: Worker, position: int, count: int) -> None:
        own = worker.own
        worker.gradient = gradient_of(self.data, worker, worker.sampler.indices(position)[:count], own.local)
        if worker.stepper is not None:
            own.steps += 1
            rate = own.lr * worker.own_rate
            worker.stepper.step(own.local, own.local, worker.gradient, 1.0, rate, own.slots, own.steps)

    def _updates(self, worker: Worker, examples: int) -> Sequence[Update]:
        update = worker.policy.outgoing(worker.gradient, worker.own)
        if update is None:
            return [Empty(server.length) for server in self._slices]
        return [Dense(part.copy()) for part in self._parts(update)]

    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        super()._take(worker, replies)
        if worker.own.start is not None:
            np.copyto(worker.own.start, worker.own.local)

    def _mix(self, worker: Worker, number: int, reply: Reply, values: Vector) -> None:
        policy, local = worker.policy, self._parts(worker.own.local)[number]
        alpha = policy.alpha(reply.others, reply.members)
        if reply.outcome is Outcome.DROPPED:
            alpha = min(1.0, alpha)
        if alpha != 1 and policy.takes_local_step and worker.gradient is not None:
            rate = reply.lr * worker.own_rate
            kernels.plain_step(local, self._parts(worker.gradient)[number], rate)
        if policy.pulls(worker.clock):
            kernels.mix(local, values, alpha)

    def _has(self, worker: Worker, number: int, values: Vector) -> None:
        np.copyto(self._parts(worker.own.local)[number], values)
        if worker.own.start is not None:
            np.copyto(worker.own.start, worker.own.local)
        self._new_slots(worker)

    def model(self) -> Vector:
        found = []
        for server in self._slices:
            published = server.pull()
            assert published is not None
            found.append(published.values)
        return np.concatenate(found)

    def measures(self, of: Sequence[str] = PARTS) -> dict[str, float]:
        return self.data.measures(self.model(), of)
