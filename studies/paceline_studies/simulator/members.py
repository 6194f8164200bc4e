"""Who takes part in a training in virtual time: workers join, leave, and come back to ask servers for weights."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial

from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Base, Reply, Vector, View
from paceline_studies.simulator.pace import Pace
from paceline_studies.simulator.timeline import Timeline
from paceline_studies.simulator.worker import Worker

AGAIN = 0.1
"""How long a worker that is back waits before it asks again for a seat that it could not have (units of time)."""


class Members(ABC):
    """The workers of a training as the chief knows them. `Training` makes its attributes."""

    time: Timeline
    pace: Pace
    examples: int
    workers: list[Worker]
    _run: Run
    _steps: int
    """Of each worker in an epoch."""
    _slices: list[ModelSlice]
    _names: list[str]
    """Of the servers."""
    _lengths: Sequence[int]
    _awaited: list[list[tuple[Worker, int, int | None, float]]]
    """By server: workers that are back, their incarnations, which version they need (None: any), and since when."""

    @property
    def view(self) -> View:
        return self._run.membership.view

    def _join(self, worker: Worker) -> int:
        return self._run.join(worker.name, False, self.examples, self._steps, "", self.time.now)

    def _publish(self) -> None:
        """Tells all servers who counts, at once, and the chief that they know."""
        for number, server in enumerate(self._slices):
            self._send(number, server.view(self.view))
            if number:
                self._run.other_servers.acknowledged(number, server.term, self.view.number, server.switch_number)

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
        self._account_for_the_rest(worker)
        self._leave(worker, False)
        worker.replies = []
        worker.held = 0.0
        if end < math.inf:
            self.time.after(max(0.0, end - self.time.now), partial(self._returns, worker))

    def _account_for_the_rest(self, worker: Worker) -> None:
        """What it does not finish has taken time, too, its wait for others included."""
        now = self.time.now
        if worker.asked is not None:
            worker.waited += now - worker.asked
            worker.asked, worker.returning = None, 0
            self._awaited = [[each for each in waiting if each[0] is not worker] for waiting in self._awaited]
        elif worker.is_sending:
            there = max(worker.began, min(worker.ready, now))
            worker.pushed += there - worker.began
            worker.waited += now - there
            worker.is_sending = False
        else:
            worker.compute -= max(0.0, worker.computes_until - now)

    def _returns(self, worker: Worker) -> None:
        """The worker joins again, and asks for the weights."""
        incarnation = self._join(worker)
        worker.clock = min(server.clocks.entry(worker.name).clock for server in self._slices)
        clocks = self._slices[0].clocks
        if not self._run.seat(worker.name, incarnation, worker.clock, lambda: clocks, self.time.now):
            if self._run.phase is RunPhase.TRAINING:
                self.time.after(AGAIN, partial(self._returns, worker))
            return
        worker.incarnation = incarnation
        worker.asked = self.time.now
        self._publish()
        self._goes_later(worker)
        if (change := self.view.made) is not None and worker.in_force.adopt(change):
            self._begin_half(worker)  # it was away meanwhile
        version = worker.clock + self.view.seats[worker.name].handicap if worker.policy.rounds else None
        for number in range(len(self._slices)):
            ask = partial(self._asks, worker, incarnation, number, version)
            self.pace.carry((worker.name, self._names[number]), 0, ask)

    def _asks(self, worker: Worker, incarnation: int, number: int, version: int | None) -> None:
        self._awaited[number].append((worker, incarnation, version, self.time.now))
        self._hand_out(number)

    def _hand_out(self, number: int) -> None:
        """Weights for those who are back, as soon as there are those that they need."""
        server, waiting = self._slices[number], self._awaited[number]
        self._awaited[number] = [each for each in waiting if each[2] is not None and each[2] > server.version]
        for worker, incarnation, version, since in waiting:
            if version is None or version <= server.version:
                worker.held = max(worker.held, self.time.now - since)
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
            worker.waited += worker.held
            worker.asked, worker.returning, worker.held = None, 0, 0.0
            self._begin(worker)

    @abstractmethod
    def _begin_half(self, worker: Worker) -> None:
        """The worker begins its half of the policy in force, with its present model."""

    @abstractmethod
    def _begin(self, worker: Worker) -> None:
        """The worker's next clock begins."""

    @abstractmethod
    def _send(self, number: int, replies: Sequence[Reply]) -> None:
        """A server answers those who may go on."""

    def _has(self, worker: Worker, number: int, values: Vector) -> None:  # noqa: B027 - where no model comes from servers
        """A worker that is back takes a server's weights."""

    def _left(self, worker: Worker) -> None:  # noqa: B027 - nobody waits for those who left where there are servers
        """The worker has made its last step, or has gone away."""
