"""What trainings in virtual time have in common, with servers and without: workers and their gradients, the way of messages,
and the chief that counts. One seed is one schedule."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

import numpy as np

from paceline.core.run.phases import RunPhase
from paceline.core.run.run import Run
from paceline.core.settings.config import Config
from paceline.core.settings.slow import slowness
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import make_plan
from paceline.core.steps.clip import Clip, l2_norm
from paceline.core.steps.effective import effective, pool_of
from paceline.core.steps.momentum import WorkerMomentum
from paceline.core.steps.optimizer import build_optimizer
from paceline.core.sync.policy import Own, Policy, build_policy
from paceline.core.values import Base, Push, Reply, Vector, View
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.simulator.links import LATENCY, Links
from paceline.simulator.problem import Problem
from paceline.simulator.timeline import Timeline

STEP = (0.8, 1.2)
"""Shortest and longest time of an equal worker's step; 1 is the unit of time."""
WAY = (0.02, 0.2)
"""Of a message."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a run came to."""

    model: Vector
    """The one that is scored: the servers', or the mean of the workers' where there are none."""
    time: float
    """In steps of an equal worker."""
    examples: int
    pushes: int
    staleness: float
    """Mean over all pushes (versions)."""


@dataclass(slots=True)
class Slow:
    """One way in which a worker is slow at times."""

    factor: float
    """By what a step takes longer."""
    probability: float
    """That a step begins a spell."""
    left: int = 0
    """Steps of the present spell still to come."""


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, between two events."""

    name: str
    rank: int
    policy: Policy
    momentum: WorkerMomentum | None
    clip: Clip
    sampler: Sampler
    own: Own
    slow: list[Slow]
    clock: int = 0
    gradient: Vector | None = None
    bases: list[Base] = field(default_factory=list)
    replies: list[tuple[int, Reply, Vector]] = field(default_factory=list)
    """By server, with the weights that came."""
    ready: float = 0.0
    """When its last push was with the chief, or its last gradient was computed."""


class Training(ABC):
    """What trainings with and without servers have in common."""

    def __init__(self, config: Config, problem: Problem, links: Links | None = None, spell: int = 1) -> None:
        """`links`: None: a message takes as long whatever it holds. `spell`: steps that a worker is slow for, once it is."""
        self.config = config
        self.problem = problem
        self.time = Timeline()
        self.waited = 0.0
        """By all workers for others, without the way of messages (steps of an equal worker)."""
        self.gradients = 0
        """That workers have begun to compute."""
        self.most_ahead = 0
        """The largest lead over the slowest worker (clocks)."""
        self._links = links
        self._spell = spell
        self._random = Random(config.seed)
        self._asked = build_optimizer(config.optimizer)
        self._pool = pool_of(config)
        self._optimizer = effective(self._pool, self._asked, build_policy(config.policy))
        self._plan = make_plan([("all", (len(problem.first),))], config.servers, config.plan)
        self._slices = [self._new_slice(length) for length in self._plan.lengths or [0]]
        self._stale = 0.0
        self._run = Run(config)
        self._run.ready(0.0)
        owned = [[rank] for rank in range(config.workers)]
        sizes = [len(labels) for _, labels in problem.shards]
        self._steps = steps_per_epoch(sizes, owned, config.worker_batch)
        self.workers = [self._new_worker(rank) for rank in range(config.workers)]
        self._start()

    def _new_slice(self, length: int) -> ModelSlice:
        config = self.config
        return ModelSlice(
            length, build_policy(config.policy), self._asked, 1, config.schedule, config.epochs, self._pool
        )

    def _new_worker(self, rank: int) -> Worker:
        config, name = self.config, f"worker-{rank}"
        mine = [len(self.problem.shards[rank][1])]
        sampler = Sampler(mine, config.worker_batch, self._steps, config.seed, name)
        policy, local = build_policy(config.policy), self.problem.first.copy()
        own = Own(local, self._optimizer, 0.0, local.copy() if policy.keeps_start else None)
        slow = [Slow(*slowness(who, how)) for who, how in config.slow.items() if who in ("all", str(rank))]
        momentum = None if self._pool is None else self._pool.momentum(self._asked, policy)
        return Worker(name, rank, policy, momentum, Clip(config.clip), sampler, own, slow)

    def _start(self) -> None:
        """All workers have joined and have their seats."""
        for part, server in zip(self._parts(self.problem.first), self._slices, strict=True):
            server.initialise(part.copy(), b"first")
        incarnations = [
            self._run.join(worker.name, False, self.problem.examples, self._steps, "", 0.0) for worker in self.workers
        ]
        for worker, incarnation in zip(self.workers, incarnations, strict=True):
            self._run.seat(worker.name, incarnation, 0, self._slices[0].clocks, 0.0)
        self._publish()

    @property
    def view(self) -> View:
        return self._run.membership.view

    @property
    def epochs(self) -> float:
        """Passes over the data so far, by all workers together."""
        return self._slices[0].clocks.examples / self.problem.examples

    def _publish(self) -> None:
        """Tells all servers who counts."""
        for number, server in enumerate(self._slices):
            self._send(number, server.view(self.view))

    def run(self, watch: Callable[["Training"], None] = lambda training: None) -> Trained:
        """Trains to the end. `watch` is called after each event."""
        for worker in self.workers:
            worker.own.lr = self._slices[0].lr
            worker.bases = [Base(1, 0)] * len(self._slices)
            self._begin(worker)
        while self._run.phase is not RunPhase.SCORING:
            self.time.next_event()
            watch(self)
        clocks = self._slices[0].clocks
        return Trained(self.model(), self.time.now, clocks.examples, clocks.pushes, self._stale / max(1, clocks.pushes))

    # the way to the servers and back
    def _push(self, worker: Worker, number: int, push: Push) -> None:
        """A push has come to a server."""
        server, before = self._slices[number], self.view
        if number == 0:
            self._stale += server.version - push.base.version
            worker.ready = self.time.now
        self._send(number, server.push(push))
        if number == 0:
            self.most_ahead = max(self.most_ahead, server.clocks.lead(worker.name))
            self._run.counted(server.clocks, self.time.now)
            if self.view is not before:
                self._publish()

    def _send(self, number: int, replies: Sequence[Reply]) -> None:
        for reply in replies:
            values = reply.weights.values.copy()
            self._slices[number].release(reply.weights)
            worker = self.workers[int(reply.worker.rpartition("-")[2])]
            if number == 0:
                self.waited += self.time.now - worker.ready
            way = f"server-{number}", worker.name
            self._carry(partial(self._answered, worker, number, reply, values), way, len(values))

    def _answered(self, worker: Worker, number: int, reply: Reply, values: Vector) -> None:
        """A server's answer has come to a worker."""
        worker.replies.append((number, reply, values))
        if len(worker.replies) < len(self._slices):
            return
        replies = worker.replies
        worker.replies = []
        worker.own.lr = next(reply.lr for number, reply, _ in replies if number == 0)
        self._take(worker, replies)
        if any(reply.stop for _, reply, _ in replies):
            self._run.leave(worker.name, 1, True, self.time.now)
            self._publish()
            self._left(worker)
        else:
            self._begin(worker)

    def _carry(self, action: partial[None], way: tuple[str, str], values: int) -> None:
        """Brings a message with this number of values from one node to another."""
        if self._links is None:
            self.time.after(self._random.uniform(*WAY), action)
        else:
            self._links.carry(self.time, self._random.uniform(*LATENCY), way, values, action)

    def _parts(self, vector: Vector) -> list[Vector]:
        """What each server has of it, not copied; the chief of a run without servers has nothing."""
        return [part[0] if part else vector[:0] for part in self._plan.split(vector)]

    # the workers
    def _compute(self, worker: Worker, local: Vector, position: int) -> tuple[Vector | None, int, float]:
        """The gradient of a mini-batch, its examples, and the time that it takes."""
        rows = worker.sampler.indices(position)
        time = self._random.uniform(*STEP)
        for slow in worker.slow:
            if not slow.left and self._random.random() < slow.probability:
                slow.left = self._spell
            if slow.left:
                slow.left -= 1
                time *= slow.factor
        if not len(rows):
            return None, 0, 0.0
        self.gradients += 1
        inputs, labels = self.problem.shards[worker.rank]
        gradient = self.problem.net.gradient(local, inputs[rows], labels[rows])
        if worker.clip.limits:
            gradient *= np.float32(worker.clip.factor(l2_norm(gradient)))
        if worker.momentum is not None:
            worker.momentum.look_ahead(gradient, local)
        return gradient, len(rows), time

    @abstractmethod
    def _begin(self, worker: Worker) -> None:
        """The worker's next clock begins."""

    @abstractmethod
    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        """All servers have answered the worker's push."""

    @abstractmethod
    def model(self) -> Vector:
        """The model to score, as it is now."""

    def _left(self, worker: Worker) -> None:  # noqa: B027 - nobody waits for those who left where there are servers
        """The worker has made its last step."""
