"""A worker process in virtual time: the protocol of a worker on one screen, without gradients worth the name."""

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from paceline.core.errors import Fenced, Gap, NotYet, PacelineError, PoolFull, VersionGone
from paceline.core.run.phases import RunPhase
from paceline.core.run.run import Run
from paceline.core.run.workers import WorkerReport
from paceline.core.sync.policy import Own, build_policy
from paceline.core.sync.policy_in_force import PolicyInForce
from paceline.core.values import Base, Dense, Empty, Outcome, Push, Reply, Switch, Vector, View
from tests.support.virtual_time import PATIENCE, Body, Box, Task

if TYPE_CHECKING:
    from tests.support.virtual import Cluster
    from tests.support.virtual_server import Server


@dataclass(frozen=True)
class Work:
    """What the mini-batches of one clock gave."""

    update: Vector | None
    examples: int
    gradient: Vector | None
    bases: list[Base]
    """The weights that it was computed on."""


class Worker:
    """One process: joins, resumes, takes its seat, pulls, then pushes clock after clock to all slices at once."""

    def __init__(self, cluster: "Cluster", name: str, was_fenced: bool = False) -> None:
        self.cluster = cluster
        self.name = name
        self.was_fenced = was_fenced
        self.incarnation = 0
        self.view = 0
        self.is_silent = False
        self.has_finished = False
        self.local = np.zeros(cluster.plan.total, np.float32)
        self.lr = cluster.optimizer.lr
        self.speed = 1.0 / cluster.conditions.slow.get(name, 1.0)
        cluster.processes.append(self)
        servers = len(cluster.servers)
        self.answered = [0] * servers
        self.terms = [0] * servers
        self.bases = [Base(0, 0)] * servers
        self.last_terms = [0] * servers
        """Term of each server's last reply."""
        self.begin(PolicyInForce(build_policy(cluster.config.policy)))
        self.tasks = [Task(cluster, self._process())]

    def begin(self, in_force: PolicyInForce) -> None:
        """The worker's half of a policy, anew; the model is the one pulled last."""
        self.in_force = in_force
        self.policy = in_force.policy
        self.stepper = self.policy.worker_optimizer(self.cluster.optimizer)
        self.own = Own(self.local, self.cluster.optimizer, self.lr)
        if self.policy.keeps_start:
            self.own.start = self.local.copy()
        if self.stepper is not None:
            self.own.slots = self.stepper.new_slots(len(self.local))

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
        found = yield from self._take_seat(clock)
        seat, switch = found or (None, None)
        if seat is not None and (seat.last is None or clock < seat.last):
            in_force = PolicyInForce(build_policy(self.cluster.config.policy), switch)
            yield from self._pull(clock + seat.handicap if in_force.policy.rounds else None)
            self.begin(in_force)
            yield from self._train(clock)
            self.has_finished = True
        yield from self.leave(seat is not None)

    def _train(self, clock: int) -> Body:
        """As worker/training/training_loop.py, from `clock` on until a server says that the last one has come."""
        ready = yield from self._work(clock + 1)
        while True:
            clock += 1
            calls, ahead = self._begin_exchange(clock, ready), None
            if self.cluster.config.overlap and self.policy.overlaps:
                ahead = yield from self._work(clock + 1)
            replies = yield from self._end_exchange(calls, ready)
            if any(reply.stop for reply in replies):
                return
            changed = [reply for reply in replies if reply.switch and self.in_force.is_new(reply.switch)]
            if changed:
                yield from self._adopt(max(changed, key=lambda reply: reply.switch.number))
                ahead = None
            ready = ahead or (yield from self._work(clock + 1))

    def _work(self, clock: int) -> Body:
        """The mini-batches of one clock, with own steps between them where the policy has any."""
        gradient = None
        steps = self.policy.local_steps(self.speed)
        self.own.lr = self.lr
        for _ in range(steps):
            yield self.cluster.step_seconds(self.name)
            if not self.cluster.is_blank(self.name, clock):
                gradient = self.cluster.gradient(self.name, clock, self.local)
                if self.stepper is not None:
                    own = self.own
                    own.steps += 1
                    self.stepper.step(own.local, own.local, gradient, 1.0, own.lr, own.slots, own.steps)
        update = self.policy.outgoing(gradient, self.own)
        examples = 0 if gradient is None else self.cluster.config.batch_size * steps
        return Work(update, examples, gradient, list(self.bases))

    def _adopt(self, reply: Reply) -> Body:
        """A slice has begun another policy: this worker's half begins too, with the weights of now."""
        assert reply.switch is not None
        self.in_force.adopt(reply.switch)
        self.view = max(self.view, reply.view)
        yield from self._pull(reply.switch.version)
        self.begin(self.in_force)

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
        for server in self.cluster.servers:

            def resume(server: "Server" = server) -> Any:
                return server.resume(self.name, self.incarnation, self.answered[server.index])  # as each try finds it

            standing = yield from self.cluster.call(server, resume)
            self.terms[server.index] = standing.term
            clocks.append(standing.clock)
        return clocks

    def _take_seat(self, clock: int) -> Body:
        """The seat and the change of policy that it begins with, once the worker counts; None where the run ends before."""

        def take(run: Run) -> tuple[bool, RunPhase, View, Switch | None]:
            clocks = self.cluster.servers[0].slice.clocks
            seated = run.seat(self.name, self.incarnation, clock, clocks, self.cluster.now)
            return seated, run.phase, run.membership.view, run.membership.view.made

        while True:
            seated, phase, view, switch = yield from self.cluster.call_chief(take)
            if seated:
                self.view = view.number
                return view.seats[self.name], switch
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

    def _begin_exchange(self, clock: int, ready: Work) -> list[Task]:
        """One push to every slice, side by side."""
        calls = [Task(self.cluster, self._exchange(server, clock, ready)) for server in self.cluster.servers]
        self.tasks += calls
        self.has_pulled = self.policy.pulls(clock) or [base.term for base in self.bases] != self.last_terms
        return calls

    def _end_exchange(self, calls: list[Task], ready: Work) -> Body:
        """Mixes what comes back, slice by slice; returns the replies."""
        replies = []
        for call, server, place in zip(calls, self.cluster.servers, self.cluster.places, strict=True):
            reply, version, weights, _ = yield call.result, None
            self.last_terms[server.index] = reply.term
            self._mix(place, reply, ready, weights)
            if self.has_pulled:
                self.bases[server.index] = Base(reply.term, version)
            replies.append(reply)
        self.tasks = [task for task in self.tasks if task not in calls]
        self.lr = replies[0].lr
        if self.own.start is not None:
            np.copyto(self.own.start, self.local)
        return replies

    def _mix(self, place: slice, reply: Reply, ready: Work, weights: Vector) -> None:
        share = self.policy.alpha(reply.others, reply.members)
        share = min(1.0, share) if reply.outcome is Outcome.DROPPED else share
        local = self.local[place]
        if self.policy.takes_local_step and share != 1 and ready.gradient is not None:
            local -= np.float32(reply.lr) * ready.gradient[place]
        if self.has_pulled:
            local[:] = weights if share == 1 else local + np.float32(share) * (weights - local)

    def _exchange(self, server: "Server", clock: int, ready: Work) -> Body:
        length = self.cluster.plan.lengths[server.index]
        whole_update = None if ready.update is None else ready.update[self.cluster.places[server.index]].copy()
        update = Empty(length) if whole_update is None else Dense(whole_update)
        base, whole, switches = ready.bases[server.index], True, self.in_force.number
        while True:
            push = Push(self.name, self.incarnation, clock, update, ready.examples, base, self.view, self.cluster.now)
            box = Box()
            if whole:
                self.cluster.carry(partial(server.push, push, switches, box), self.cluster.conditions.double)
            else:
                self.cluster.carry(partial(server.ask, self.name, self.incarnation, clock, box))
            try:
                answer = yield box, PATIENCE
                if answer is not None:
                    self.answered[server.index] = clock
                    if ready.examples and answer[-1]:
                        book = self.cluster.acknowledged.setdefault((server.index, self.name), {})
                        book[clock] = answer[0].outcome
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
