"""A worker process in virtual time: the protocol of a worker on one screen, without gradients worth the name."""

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from virtual_time import PATIENCE, Body, Box, Task

from paceline.core.errors import Fenced, Gap, NotYet, PacelineError, PoolFull, VersionGone
from paceline.core.policy import build_policy
from paceline.core.run import Run, RunPhase, WorkerReport
from paceline.core.values import Base, Dense, Push, Vector, View

if TYPE_CHECKING:
    from virtual import Cluster, Server


class Worker:
    """One process: joins, resumes, takes its seat, pulls, then pushes clock after clock to all slices at once."""

    def __init__(self, cluster: "Cluster", name: str, was_fenced: bool = False) -> None:
        self.cluster, self.name, self.was_fenced = cluster, name, was_fenced
        self.incarnation, self.view, self.is_silent = 0, 0, False
        self.policy = build_policy(cluster.config.policy)
        self.local = np.zeros(cluster.plan.total, np.float32)
        cluster.processes.append(self)
        servers = len(cluster.servers)
        self.answered, self.terms, self.bases = [0] * servers, [0] * servers, [Base(0, 0)] * servers
        self.tasks = [Task(cluster, self._process())]

    def stop(self) -> None:
        for task in self.tasks:
            task.stop()

    def _process(self) -> Body:
        try:
            yield from self._life()
        except Fenced as error:
            self.stop()
            if self.incarnation:
                self.cluster.after(1.0, lambda: self.cluster.start_worker(self.name, was_fenced=True))
            else:
                self.cluster.exits.append((self.name, error))
        except PacelineError as error:
            self.cluster.errors.append((self.cluster.now, self.name, error))
            self.stop()

    def _life(self) -> Body:
        if not (yield from self._join()):
            return
        clock = min((yield from self._resume_all()))
        self.answered = [clock] * len(self.answered)  # what a slice loses from now on is not this process's to repeat
        self.tasks.append(Task(self.cluster, self._beat()))
        seat = yield from self._take_seat(clock)
        if seat is not None and (seat.last is None or clock < seat.last):
            yield from self._pull(clock + seat.handicap if self.policy.rounds else None)
            stop = False
            while not stop:
                clock += 1
                gradient = self.cluster.gradient(self.name, clock, self.local)
                yield self.cluster.step_seconds(self.name)
                stop = yield from self._exchange_all(clock, gradient)
        yield from self.leave(seat is not None)

    def _join(self) -> Body:
        def join(run: Run) -> int:
            return run.join(self.name, self.was_fenced, examples, examples, "", self.cluster.now)

        examples = self.cluster.examples
        while self.cluster.run.phase is not RunPhase.FINISHED:
            try:
                self.incarnation = yield from self.cluster.call_chief(join)
                return True
            except PoolFull:
                yield 1.0
        return False

    def _resume_all(self) -> Body:
        """Says on every slice where this process stands; returns its clock on each."""
        clocks = []
        for server, answered in zip(self.cluster.servers, list(self.answered), strict=True):
            resume = partial(server.resume, self.name, self.incarnation, answered)
            standing = yield from self.cluster.call(server, resume)
            self.terms[server.index] = standing.term
            clocks.append(standing.clock)
        return clocks

    def _take_seat(self, clock: int) -> Body:
        """The seat, once the worker counts; None where the run ends before."""

        def take(run: Run) -> tuple[bool, RunPhase, View]:
            clocks = self.cluster.servers[0].slice.clocks
            seated = run.seat(self.name, self.incarnation, clock, clocks, self.cluster.now)
            return seated, run.phase, run.membership.view

        while True:
            seated, phase, view = yield from self.cluster.call_chief(take)
            if seated:
                self.view = view.number
                return view.seats[self.name]
            if phase not in (RunPhase.WAITING, RunPhase.TRAINING):
                return None
            yield 0.2

    def _pull(self, version: int | None) -> Body:
        for server, place in zip(self.cluster.servers, self.cluster.places, strict=True):
            found, wanted = None, version
            while found is None:
                try:
                    found = yield from self.cluster.call(server, partial(server.pull, wanted))
                except VersionGone:
                    wanted = None
                if found is None:
                    yield 0.05
            self.bases[server.index], self.local[place] = found

    def _exchange_all(self, clock: int, gradient: Vector) -> Body:
        """One push to every slice; mixes what comes back slice by slice; returns whether it was the last clock."""
        calls = [Task(self.cluster, self._exchange(server, clock, gradient)) for server in self.cluster.servers]
        self.tasks += calls
        stop = False
        for call, server, place in zip(calls, self.cluster.servers, self.cluster.places, strict=True):
            reply, version, weights = yield call.result, None
            self.bases[server.index] = Base(reply.term, version)
            alpha = self.policy.alpha(reply.others, reply.members)
            local = self.local[place]
            if self.policy.takes_local_step:
                local -= np.float32(reply.lr) * gradient[place]
            self.local[place] = weights if alpha == 1 else local + np.float32(alpha) * (weights - local)
            stop = stop or reply.stop
        self.tasks = [task for task in self.tasks if task not in calls]
        return stop

    def _exchange(self, server: "Server", clock: int, gradient: Vector) -> Body:
        part = gradient[self.cluster.places[server.index]].copy()
        base, whole = self.bases[server.index], True
        while True:
            push = Push(
                self.name, self.incarnation, clock, Dense(part), self.cluster.config.batch_size, base, self.view, 0.0
            )
            box = Box()
            if whole:
                self.cluster.carry(partial(server.push, push, box), self.cluster.conditions.double)
            else:
                self.cluster.carry(partial(server.ask, self.name, self.incarnation, clock, box))
            try:
                answer = yield box, PATIENCE
                if answer is not None:
                    self.answered[server.index] = clock
                    self.cluster.acknowledged.setdefault((server.index, self.name), {})[clock] = answer[0].outcome
                    return answer
                whole = False
            except (Gap, NotYet) as error:
                whole = True
                yield 0.01 if isinstance(error, Gap) else 0.1

    def _beat(self) -> Body:
        report = WorkerReport(phase="compute")
        while True:
            yield self.cluster.config.heartbeat
            if self.is_silent:
                continue
            try:
                yield from self.cluster.call_chief(
                    lambda run: run.beat(self.name, self.incarnation, report, self.cluster.now)
                )
            except Fenced:
                self.stop()
                self.cluster.after(1.0, lambda: self.cluster.start_worker(self.name, was_fenced=True))
            if self.terms != [server.term for server in self.cluster.servers]:
                yield from self._resume_all()

    def leave(self, finished: bool) -> Body:
        yield from self.cluster.call_chief(
            lambda run: run.leave(self.name, self.incarnation, finished, self.cluster.now)
        )
        self.stop()
