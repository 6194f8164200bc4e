"""What trainings in virtual time have in common, with servers and without: workers, the way of messages, who is away, and the
chief that counts. One seed is one schedule."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.run.phases import RunPhase
from paceline.core.run.run import Run
from paceline.core.settings.config import Config
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import Shapes, make_plan
from paceline.core.steps.clip import Clip
from paceline.core.steps.effective import effective, pool_of
from paceline.core.steps.momentum import WorkerMomentum
from paceline.core.steps.optimizer import build_optimizer
from paceline.core.sync.policy import Own, Policy, build_policy
from paceline.core.values import Base, Push, Reply, Update, Vector, View
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.simulator.pace import Chances, Pace
from paceline.simulator.problem import PARTS
from paceline.simulator.scene import Scene, goings
from paceline.simulator.timeline import Timeline
from paceline.worker.training.between_pushes import part_of

NewPace = Callable[[Config, Timeline], Pace]
AGAIN = 0.1
"""How long a worker that is back waits before it asks again for a seat that it could not have (units of time)."""


class Data(Protocol):
    """What is trained, as far as all trainings need it."""

    @property
    def first(self) -> Vector:
        """The weights as they are computed with."""

    @property
    def values(self) -> int:
        """Weights of the model, as they travel."""

    @property
    def shapes(self) -> Shapes:
        """Of the model's tensors, by which its weights are dealt to servers."""

    @property
    def sizes(self) -> Sequence[int]:
        """Training examples of each worker."""


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a run came to."""

    model: Vector
    """The one that is scored: the servers', or the mean of the workers' where there are none."""
    time: float
    """In steps of an equal worker, or in seconds of a scene."""
    examples: int
    pushes: int
    staleness: float
    """Mean over all pushes (versions)."""


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, between two events. Times are those of the pace."""

    name: str
    rank: int
    policy: Policy
    momentum: WorkerMomentum | None
    clip: Clip
    sampler: Sampler
    own: Own
    goings: Iterator[tuple[float, float]]
    incarnation: int = 1
    """0 while it is away: what was under way for it counts no more."""
    clock: int = 0
    gradient: Vector | None = None
    bases: list[Base] = field(default_factory=list)
    replies: list[tuple[int, Reply, Vector]] = field(default_factory=list)
    """By server, with the weights that came."""
    returning: int = 0
    """Servers whose weights have come since it is back."""
    counted: float = 0.0
    """When the chief took its last push."""
    began: float = 0.0
    """When its last push went out, or its last gradient was computed."""
    ready: float = 0.0
    """When its last push was with the last server, or its last gradient was computed."""
    held: float = 0.0
    """How long the policy has let its present push wait; of several servers, the longest."""
    compute: float = 0.0
    pushed: float = 0.0
    waited: float = 0.0
    pulled: float = 0.0
    stale: int = 0
    """The sum over its pushes (versions)."""
    most_stale: int = 0


class Training(ABC):
    """What trainings with and without servers have in common."""

    def __init__(self, config: Config, data: Data, pace: NewPace = Chances, scene: Scene | None = None) -> None:
        """`scene`: who is away when; None: nobody."""
        self.config = config
        self.data = data
        self.time = Timeline()
        self.pace = pace(config, self.time)
        self.waited = 0.0
        """By all workers for others, without the way of messages."""
        self.gradients = 0
        """That workers have begun to compute."""
        self.most_ahead = 0
        """The largest lead over the slowest worker (clocks)."""
        self._scene = scene
        self._asked = build_optimizer(config.optimizer)
        self._pool = pool_of(config)
        self._optimizer = effective(self._pool, self._asked, build_policy(config.policy))
        self._plan = make_plan(data.shapes, config.servers, config.plan)
        self._lengths = self._plan.lengths or [0]
        """Values of a whole push to each server, and of its answer."""
        self._slices = [self._new_slice(length) for length in self._lengths]
        self._names = [f"server-{number}" for number in range(len(self._lengths))]
        self._awaited: list[list[tuple[Worker, int, int | None]]] = [[] for _ in self._slices]
        """By server: workers that are back, their incarnations, and which version they need (None: any)."""
        self._run = Run(config)
        self._run.ready(0.0)
        self.examples = sum(data.sizes)
        self._by_speed = config.batch == "speed"
        owned = [[rank] for rank in range(config.workers)]
        self._steps = steps_per_epoch(data.sizes, owned, config.worker_batch)
        self.workers = [self._new_worker(rank) for rank in range(config.workers)]
        self._named = {worker.name: worker for worker in self.workers}
        self._start()

    def _new_slice(self, length: int) -> ModelSlice:
        config = self.config
        return ModelSlice(
            length, build_policy(config.policy), self._asked, 1, config.schedule, config.epochs, self._pool
        )

    def _new_worker(self, rank: int) -> Worker:
        config, name = self.config, f"worker-{rank}"
        sampler = Sampler([self.data.sizes[rank]], config.worker_batch, self._steps, config.seed, name)
        policy, local = build_policy(config.policy), self.data.first.copy()
        own = Own(local, self._optimizer, 0.0, local.copy() if policy.keeps_start else None)
        momentum = None if self._pool is None else self._pool.momentum(self._asked, policy)
        away = iter(()) if self._scene is None else goings(self._scene, rank, config.seed)
        return Worker(name, rank, policy, momentum, Clip(config.clip), sampler, own, away)

    def _start(self) -> None:
        """All workers have joined and have their seats."""
        for first, server in zip(self._first(), self._slices, strict=True):
            server.initialise(first, b"first")
        incarnations = [self._join(worker) for worker in self.workers]
        for worker, incarnation in zip(self.workers, incarnations, strict=True):
            self._run.seat(worker.name, incarnation, 0, self._slices[0].clocks, 0.0)
        self._publish()

    def _first(self) -> list[Vector]:
        """The first weights of each slice."""
        return [part.copy() for part in self._parts(self.data.first)]

    def _join(self, worker: Worker) -> int:
        return self._run.join(worker.name, False, self.examples, self._steps, "", self.time.now)

    @property
    def view(self) -> View:
        return self._run.membership.view

    @property
    def epochs(self) -> float:
        """Passes over the data so far, by all workers together."""
        return self.trained / self.examples

    @property
    def trained(self) -> int:
        """Training examples so far."""
        return self._slices[0].clocks.examples

    @property
    def pushes(self) -> int:
        return self._slices[0].clocks.pushes

    def _publish(self) -> None:
        """Tells all servers who counts."""
        for number, server in enumerate(self._slices):
            self._send(number, server.view(self.view))

    def advance(self, watch: Callable[["Training"], None] | None = None) -> None:
        """Trains to the end. `watch` is called after each event. ConfigError where nobody is left to go on."""
        for worker in self.workers:
            worker.own.lr = self._slices[0].lr
            worker.bases = [Base(1, 0)] * len(self._slices)
            self._goes_later(worker)
            self._begin(worker)
        while self._run.phase is not RunPhase.SCORING:
            if not self.time.next_event():
                raise ConfigError(
                    f"After {self.time.now:,.1f} s nobody is left who could go on: the workers are away for good. Let one "
                    "stay, or come back."
                )
            if watch is not None:
                watch(self)

    def run(self, watch: Callable[["Training"], None] | None = None) -> Trained:
        """Trains to the end, as `advance` does, and says what came of it."""
        self.advance(watch)
        clocks = self._slices[0].clocks
        stale = sum(worker.stale for worker in self.workers)
        return Trained(self.model(), self.time.now, clocks.examples, clocks.pushes, stale / max(1, clocks.pushes))

    # the way to the servers and back
    def _exchange(self, worker: Worker, updates: Sequence[Update], examples: int) -> None:
        """The worker's next push sets out to all servers."""
        now = worker.began = self.time.now
        for number, update in enumerate(updates):
            values = self._lengths[number] if examples else 0
            told = worker, worker.incarnation, number, update, examples, self.view.number, now
            come = partial(self.pace.serve, number, values, partial(self._push, *told))
            self.pace.carry((worker.name, self._names[number]), values, come)

    def _push(
        self, worker: Worker, incarnation: int, number: int, update: Update, examples: int, view: int, sent: float
    ) -> None:
        """A server takes a push."""
        if incarnation != worker.incarnation:
            return
        server, base, now = self._slices[number], worker.bases[number], self.time.now
        worker.ready = now
        if number == 0:
            worker.counted = now
            staleness = server.version - base.version
            worker.stale += staleness
            worker.most_stale = max(worker.most_stale, staleness)
        arrived = self.pace.arrived(sent)
        push = Push(worker.name, incarnation, worker.clock, update, examples, base, view, arrived)
        replies = server.push(push)
        if number == 0:
            self.most_ahead = max(self.most_ahead, server.clocks.lead(worker.name))
        self._send(number, replies)
        if number == 0:
            before = self.view
            self._run.counted(server.clocks, now)
            if self.view is not before:
                self._publish()

    def _send(self, number: int, replies: Sequence[Reply]) -> None:
        """A server answers those who may go on, and brings its weights to those who are back."""
        for reply in replies:
            worker = self._named[reply.worker]
            values = self._content(number, reply)
            if number == 0:
                self.waited += self.time.now - worker.counted
            worker.held = max(worker.held, self.time.now - worker.ready)
            come = partial(self._answered, worker, worker.incarnation, number, reply, values)
            size = self._lengths[number] if worker.policy.pulls(reply.clock) else 0
            self.pace.carry((self._names[number], worker.name), size, come)
        if self._awaited[number]:
            self._hand_out(number)

    def _content(self, number: int, reply: Reply) -> Vector:
        """The weights that the answer brings."""
        values = reply.weights.values.copy()
        self._slices[number].release(reply.weights)
        return values

    def _answered(self, worker: Worker, incarnation: int, number: int, reply: Reply, values: Vector) -> None:
        """A server's answer has come to a worker."""
        if incarnation != worker.incarnation:
            return
        worker.replies.append((number, reply, values))
        if len(worker.replies) < len(self._slices):
            return
        replies = worker.replies
        worker.replies = []
        self._account(worker)
        worker.own.lr = next(reply.lr for number, reply, _ in replies if number == 0)
        self._take(worker, replies)
        if any(reply.stop for _, reply, _ in replies):
            self._leave(worker, True)
        else:
            self._begin(worker)

    def _account(self, worker: Worker) -> None:
        """An exchange is over: its time is the way there, the policy's wait, and the way back."""
        took, there = self.time.now - worker.began, worker.ready - worker.began
        worker.pushed += there
        worker.waited += (held := min(worker.held, took - there))
        worker.pulled += took - there - held
        worker.held = 0.0

    def _parts(self, vector: Vector) -> list[Vector]:
        """What each server has of it, not copied; the chief of a run without servers has nothing."""
        return [part[0] if part else vector[:0] for part in self._plan.split(vector)]

    # who is away
    def _leave(self, worker: Worker, finished: bool) -> None:
        self._run.leave(worker.name, worker.incarnation, finished, self.time.now)
        worker.incarnation = 0
        self._publish()
        self._left(worker)

    def _goes_later(self, worker: Worker) -> None:
        """The worker's next absence is to begin, if it has one."""
        begin, end = next(worker.goings, (math.inf, math.inf))
        if begin < math.inf:
            self.time.after(max(0.0, begin - self.time.now), partial(self._goes, worker, end))

    def _goes(self, worker: Worker, end: float) -> None:
        if not worker.incarnation:
            return
        self._leave(worker, False)
        worker.replies = []
        worker.held = 0.0
        if end < math.inf:
            self.time.after(max(0.0, end - self.time.now), partial(self._returns, worker))

    def _returns(self, worker: Worker) -> None:
        """The worker joins again, and asks for the weights."""
        incarnation = self._join(worker)
        worker.clock = min(server.clocks.entry(worker.name).clock for server in self._slices)
        clocks = self._slices[0].clocks
        if not self._run.seat(worker.name, incarnation, worker.clock, clocks, self.time.now):
            if self._run.phase is RunPhase.TRAINING:
                self.time.after(AGAIN, partial(self._returns, worker))
            return
        worker.incarnation = incarnation
        self._publish()
        version = worker.clock + self.view.seats[worker.name].handicap if worker.policy.rounds else None
        for number in range(len(self._slices)):
            ask = partial(self._asks, worker, incarnation, number, version)
            self.pace.carry((worker.name, self._names[number]), 0, ask)

    def _asks(self, worker: Worker, incarnation: int, number: int, version: int | None) -> None:
        self._awaited[number].append((worker, incarnation, version))
        self._hand_out(number)

    def _hand_out(self, number: int) -> None:
        """Weights for those who are back, as soon as there are those that they need."""
        server, waiting = self._slices[number], self._awaited[number]
        self._awaited[number] = [each for each in waiting if each[2] is not None and each[2] > server.version]
        for worker, incarnation, version in waiting:
            if version is None or version <= server.version:
                published = server.pull(version)
                assert published is not None
                values, base = published.values.copy(), Base(server.term, published.version)
                server.release(published)
                come = partial(self._restarts, worker, incarnation, number, base, values)
                self.pace.carry((self._names[number], worker.name), self._lengths[number], come)

    def _restarts(self, worker: Worker, incarnation: int, number: int, base: Base, values: Vector) -> None:
        """A worker that is back has weights of a server."""
        if incarnation != worker.incarnation:
            return
        worker.bases[number] = base
        self._has(worker, number, values)
        worker.returning += 1
        if worker.returning == len(self._slices):
            worker.returning = 0
            self._goes_later(worker)
            self._begin(worker)

    # the workers
    def _compute(self, worker: Worker, position: int) -> tuple[int, float]:
        """How many examples the worker computes of the mini-batch at this position of its data, and the time that it takes. By
        their speed, slow workers compute a part of it (batch: speed)."""
        count, share = self._batch(worker, position), 1.0
        if self._by_speed:
            count, share = part_of(count, self.pace.speed(worker.rank))
        time = self.pace.step(worker.rank, position, share)
        if not count:
            return 0, 0.0
        self.gradients += 1
        worker.compute += time
        return count, time

    def _batch(self, worker: Worker, position: int) -> int:
        """Examples of the mini-batch at this position of the worker's data."""
        return len(worker.sampler.indices(position))

    @abstractmethod
    def _begin(self, worker: Worker) -> None:
        """The worker's next clock begins."""

    @abstractmethod
    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        """All servers have answered the worker's push."""

    def model(self) -> Vector:
        """The model to score, as it is now; an empty one without gradients."""
        return np.empty(0, np.float32)

    def measures(self, of: Sequence[str] = PARTS) -> dict[str, float]:
        """Loss and score of the model as it is now on each part, like test_accuracy; nothing without gradients."""
        return {}

    def _has(self, worker: Worker, number: int, values: Vector) -> None:  # noqa: B027 - where no model comes from servers
        """A worker that is back takes a server's weights."""

    def _left(self, worker: Worker) -> None:  # noqa: B027 - nobody waits for those who left where there are servers
        """The worker has made its last step, or has gone away."""
