"""What trainings in virtual time have in common, with servers and without: workers, the way of messages, and the
chief that counts. One seed is one schedule."""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.errors import ConfigError
from paceline.core.optimizers.clip import Clip
from paceline.core.optimizers.effective import effective, pool_of
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import Own, build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Config
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.norm_cap import NormCap
from paceline.core.slice.plan import Shapes, make_plan
from paceline.core.values import Base, Outcome, Push, Reply, Update, Vector
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.worker.training.between_pushes import part_of
from paceline_studies.simulator.changes import Changes
from paceline_studies.simulator.pace import Chances, Pace
from paceline_studies.simulator.problem import PARTS
from paceline_studies.simulator.scene import Scene, goings
from paceline_studies.simulator.timeline import Timeline
from paceline_studies.simulator.worker import Worker

NewPace = Callable[[Config, Timeline], Pace]


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


class Training(Changes):
    """What trainings with and without servers have in common."""

    def __init__(self, config: Config, data: Data, pace: NewPace = Chances, scene: Scene | None = None) -> None:
        """`scene`: who is away when; None: nobody."""
        self.config = config
        self.data = data
        self.time = Timeline()
        self.pace = pace(config, self.time)
        self.waited = 0.0
        """By all workers for others, without the way of messages."""
        self.dropped = 0
        """Examples of pushes that the policy has not used."""
        self.gradients = 0
        """That workers have begun to compute."""
        self.most_ahead = 0
        """The largest lead over the slowest worker (clocks)."""
        self._scene = scene
        self._asked = build_optimizer(config.optimizer)
        self._pool = pool_of(config)
        self._plan = make_plan(data.shapes, config.servers, config.plan)
        self._lengths = self._plan.lengths or [0]
        """Values of a whole push to each server, and of its answer."""
        self._slices = [self._new_slice(length) for length in self._lengths]
        self._names = [f"server-{number}" for number in range(len(self._lengths))]
        self._awaited = [[] for _ in self._slices]
        self._norm_cap = None if config.push_norm_cap is None else NormCap(config.push_norm_cap)
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
            length,
            build_policy(config.policy),
            self._asked,
            1,
            config.schedule,
            config.epochs,
            self._pool,
            clip=config.clip,
        )

    def _new_worker(self, rank: int) -> Worker:
        config, name = self.config, f"worker-{rank}"
        sampler = Sampler([self.data.sizes[rank]], config.worker_batch, self._steps, config.seed, name)
        in_force, own = PolicyInForce(build_policy(config.policy)), Own(self.data.first.copy(), self._asked, 0.0)
        away = iter(()) if self._scene is None else goings(self._scene, rank, config.seed)
        worker = Worker(name, rank, in_force, Clip(config.clip), sampler, own, away)
        self._begin_half(worker)
        return worker

    def _begin_half(self, worker: Worker) -> None:
        """The worker begins its half of the policy in force, with its present model."""
        policy, local, pool = worker.policy, worker.own.local, self._pool
        optimizer = effective(pool, self._asked, policy)
        half = None if pool is None else pool.half(self._asked, policy)
        worker.half = None if half is None else half.after(worker.half)
        worker.stepper = policy.worker_optimizer(optimizer)
        worker.own_rate = 1.0 if pool is None else pool.own_rate(self._asked, policy)
        start = local.copy() if policy.keeps_start else None
        worker.own = Own(local, optimizer, worker.own.lr, start, clip=Clip(self.config.clip, "mean"))
        self._new_slots(worker)

    def _new_slots(self, worker: Worker) -> None:
        """Own steps begin with nothing in memory."""
        worker.own.slots = [] if worker.stepper is None else worker.stepper.new_slots(len(worker.own.local))

    def _start(self) -> None:
        """All workers have joined and have their seats."""
        for first, server in zip(self._first(), self._slices, strict=True):
            server.initialise(first, b"first")
        incarnations = [self._join(worker) for worker in self.workers]
        for worker, incarnation in zip(self.workers, incarnations, strict=True):
            self._run.seat(worker.name, incarnation, 0, lambda: self._slices[0].clocks, 0.0)
        self._publish()

    def _first(self) -> list[Vector]:
        """The first weights of each slice."""
        return [part.copy() for part in self._parts(self.data.first)]

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

    def _ends_without_others(self) -> bool:
        """Whether the run is over once nobody is waited for any more."""
        self._run.tick(self.time.now + self.config.start_timeout + 1)
        return self._run.phase is RunPhase.SCORING

    def advance(self, watch: Callable[["Training"], None] | None = None) -> None:
        """Trains to the end. `watch` is called after each event. ConfigError where nobody is left to go on."""
        for worker in self.workers:
            worker.own.lr = self._slices[0].lr
            worker.bases = [Base(1, 0)] * len(self._slices)
            self._goes_later(worker)
            self._begin(worker)
        self._watch_policy()
        while self._run.phase is not RunPhase.SCORING:
            if not self.time.next_event():
                if self._ends_without_others():
                    break
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
        worker.is_sending = True
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
        push = Push(worker.name, incarnation, worker.clock, update, examples, base, view, arrived, round=worker.clock)
        if self._norm_cap is not None:
            self._norm_cap.hold(push)
        replies = server.push(push)
        if number == 0:
            self.dropped += examples * (server.clocks.entry(worker.name).outcome is Outcome.DROPPED)
            self.most_ahead = max(self.most_ahead, server.clocks.lead(worker.name))
        self._send(number, replies)
        if number == 0:
            before = self.view
            self._run.counted(server.clocks, now)
            if self.view is not before:
                self._publish()
        self._maybe_changed()

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
        worker.is_sending = False
        self._account(worker)
        worker.own.lr = next(reply.lr for number, reply, _ in replies if number == 0)
        changes = [reply.switch for _, reply, _ in replies if reply.switch is not None]
        if changes and worker.in_force.adopt(max(changes, key=lambda change: change.number)):
            for number, reply, values in replies:
                self._has(worker, number, values)
                worker.bases[number] = Base(reply.term, reply.weights.version)
            self._begin_half(worker)
        else:
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
        own = worker.compute + worker.pushed + worker.pulled
        worker.squares += (own - worker.accounted) ** 2
        worker.accounted = own
        worker.held = 0.0

    def _parts(self, vector: Vector) -> list[Vector]:
        """What each server has of it, not copied; the chief of a run without servers has nothing."""
        return [part[0] if part else vector[:0] for part in self._plan.split(vector)]

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
        worker.batch_from, worker.batch_until = self.time.now, self.time.now + time
        worker.compute += time
        return count, time

    def _batch(self, worker: Worker, position: int) -> int:
        """Examples of the mini-batch at this position of the worker's data."""
        return len(worker.sampler.indices(position))

    @abstractmethod
    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        """All servers have answered the worker's push."""

    def model(self) -> Vector:
        """The model to score, as it is now; an empty one without gradients."""
        return np.empty(0, np.float32)

    def measures(self, of: Sequence[str] = PARTS) -> dict[str, float]:
        """Loss and score of the model as it is now on each part, like test_accuracy; nothing without gradients."""
        return {}
