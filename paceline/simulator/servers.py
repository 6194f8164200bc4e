"""A training in virtual time with servers: what workers push, and what they do with the answers."""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from paceline.core import kernels
from paceline.core.settings.config import Config
from paceline.core.values import Base, Dense, Empty, Outcome, Push, Reply, Vector
from paceline.simulator.links import Links
from paceline.simulator.problem import Problem
from paceline.simulator.workers import Training, Worker


class Served(Training):
    """As worker/training/between_pushes.py and worker/training/training_loop.py."""

    def __init__(self, config: Config, problem: Problem, links: Links | None = None, spell: int = 1) -> None:
        super().__init__(config, problem, links, spell)
        self._stepper = self.workers[0].policy.worker_optimizer(self._optimizer)
        for worker in self.workers:
            worker.own.slots = [] if self._stepper is None else self._stepper.new_slots(len(problem.first))

    def _begin(self, worker: Worker) -> None:
        policy, own, time, examples = worker.policy, worker.own, 0.0, 0
        worker.gradient, first = None, worker.clock * policy.most_steps
        for position in range(first + 1, first + policy.local_steps(self._speed(worker)) + 1):
            gradient, count, seconds = self._compute(worker, own.local, position)
            time, examples = time + seconds, examples + count
            if gradient is None:
                continue
            worker.gradient = gradient
            if self._stepper is not None:
                own.steps += 1
                self._stepper.step(own.local, own.local, gradient, 1.0, own.lr, own.slots, own.steps)
        self.time.after(time, partial(self._computed, worker, examples))

    def _speed(self, worker: Worker) -> float:
        """The fastest one has 1."""
        means = [math.prod(1 + (slow.factor - 1) * slow.probability for slow in each.slow) for each in self.workers]
        return min(means) / means[worker.rank]

    def _computed(self, worker: Worker, examples: int) -> None:
        worker.clock += 1
        update = worker.policy.outgoing(worker.gradient, worker.own)
        parts = [None] * len(self._slices) if update is None else self._parts(update)
        for number, part in enumerate(parts):
            length = self._slices[number].length
            pushed = Empty(length) if part is None else Dense(part.copy())
            push = Push(
                worker.name,
                1,
                worker.clock,
                pushed,
                0 if part is None else examples,
                worker.bases[number],
                self.view.number,
                self.time.now,
            )
            way = worker.name, f"server-{number}"
            self._carry(partial(self._push, worker, number, push), way, 0 if part is None else length)

    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        policy, locals_ = worker.policy, self._parts(worker.own.local)
        gradients = None if worker.gradient is None else self._parts(worker.gradient)
        for number, reply, values in replies:
            alpha = policy.alpha(reply.others, reply.members)
            if reply.outcome is Outcome.DROPPED:
                alpha = min(1.0, alpha)
            if alpha != 1 and policy.takes_local_step and gradients is not None:
                kernels.plain_step(locals_[number], gradients[number], reply.lr)
            if policy.pulls(worker.clock):
                kernels.mix(locals_[number], values, alpha)
                worker.bases[number] = Base(reply.term, reply.weights.version)
        if worker.own.start is not None:
            np.copyto(worker.own.start, worker.own.local)

    def model(self) -> Vector:
        found = []
        for server in self._slices:
            published = server.pull()
            assert published is not None
            found.append(published.values)
        return np.concatenate(found)
