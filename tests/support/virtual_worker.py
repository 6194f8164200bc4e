"""A worker process in virtual time: the protocol of a worker on one screen, without gradients worth the name."""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from paceline.core.chief.common_snapshots import Returns
from paceline.core.chief.leases import NOTHING, Lease, Wish
from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.workers import WorkerReport
from paceline.core.errors import Behind, Fenced, Gap, NotYet, PacelineError, PoolFull, VersionGone
from paceline.core.policies.policy import Own, build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.slice.state import Standing
from paceline.core.values import Base, Empty, Outcome, Push, Reply, Switch, Vector, View
from paceline.worker.training.explosions import Rows
from paceline.worker.training.step_result import Step
from tests.support.virtual_time import PATIENCE, Body, Box, Task

if TYPE_CHECKING:
    from tests.support.virtual import Cluster
    from tests.support.virtual_server import Row, Server


_IDLE = 0.1
"""Pause where nothing is left (seconds)."""


@dataclass(frozen=True)
class Work:
    """What the mini-batches of one clock gave."""

    update: Vector | None
    examples: int
    gradient: Vector | None
    bases: list[Base]
    """The weights that it was computed on."""
    rows: Sequence["Row"] = ()
    has: Collection[int] = ()
    """Servers that have these rows already."""


class Sent(NamedTuple):
    """A push that a server may have to get again."""

    push: Push
    switches: int
    """The change of policy that it is of."""
    rows: Sequence["Row"]


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
        self.counted = [0] * servers
        self.terms = [0] * servers
        self.bases = [Base(0, 0)] * servers
        self.retained: list[dict[int, Sent]] = [{} for _ in range(servers)]
        """By server and clock: pushes that no snapshot on disk has."""
        self._leases: list[Lease] = []
        retain = cluster.config.checkpoint.retain
        self.most_retained = None if retain is None else retain // (4 * cluster.plan.total)
        """Pushes kept for each server."""
        self.catching_up: set[int] = set()
        self.catch_ups: list[Task] = []
        self.may_differ = False
        self.returns = Returns()
        self.behind: Behind | None = None
        self.reached = 0
        self.rows = Rows()
        self.phase = "joining"
        self.calls: list[Task] = []
        """The present exchange."""
        self.begin(PolicyInForce(build_policy(cluster.config.policy)))
        self.tasks = [Task(cluster, self._process())]

    def begin(self, in_force: PolicyInForce) -> None:
        """The worker's half of a policy, from scratch; the model is the one pulled last."""
        self.in_force = in_force
        self.policy = in_force.policy
        self.stepper = self.policy.worker_optimizer(self.cluster.optimizer)
        self.own = Own(self.local, self.cluster.optimizer, self.lr)
        if self.policy.keeps_start:
            self.own.start = self.local.copy()
        if self.stepper is not None:
            self.own.slots = self.stepper.new_slots(len(self.local))

    def stop(self) -> None:
        for task in self.tasks + self.catch_ups:
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
        self.tasks.append(Task(self.cluster, self._beat()))
        while True:
            standings = yield from self._attach()
            clock = min(clocks := [standing.clock for standing in standings])
            self.answered = [clock] * len(self.answered)
            if min(self.counted) < clock:  # a server has come back since it was asked
                continue
            self.reached = max(self.reached, *clocks)
            self.phase = "compute"
            found = yield from self._take_seat(clock)
            seat, switch = found or (None, None)
            try:
                if seat is not None and (seat.last is None or clock < seat.last):
                    in_force = PolicyInForce(build_policy(self.cluster.config.policy), switch)
                    if (yield from self._goes_back(standings, clock + seat.handicap, in_force)):
                        continue
                    self.returns.trains()
                    wanted = [clock + seat.handicap] if in_force.policy.rounds else []
                    yield from self._pull(*wanted)
                    self._check_level(in_force, [base.version for base in self.bases] + wanted)
                    self.begin(in_force)
                    yield from self._train(clock)
                    self.has_finished = True
                    yield from self._settle()
            except Behind:
                continue
            yield from self.leave(seat is not None)
            return

    def _settle(self) -> Body:
        """Until no server can lose what it has answered, or for as long as a worker waits for that."""
        end = self.cluster.now + 10.0
        while True:
            self.calls = [Task(self.cluster, self._is_durable(server)) for server in self.cluster.servers]
            self.tasks += self.calls
            found = []
            for call in self.calls:
                found.append((yield from self._answer_of(call, self.calls)))
            self.tasks = [task for task in self.tasks if task not in self.calls]
            if all(found) or self.cluster.now > end:
                return
            yield 0.1

    def _is_durable(self, server: "Server") -> Body:
        standing = yield from self._resume(server)
        if standing.clock < self.answered[server.index]:
            yield from self._bring_to(server, self.answered[server.index])
            return False
        return standing.durable >= self.answered[server.index]

    def _answer_of(self, call: Task, calls: list[Task]) -> Body:
        """Waits for it, and raises the first error of any of these calls."""
        while (answer := (yield call.result, 0.5)) is None:
            self._check_wanted()
            for each in calls:
                if isinstance(error := each.result.value, PacelineError):
                    raise error
        return answer

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
            else:
                self._check_level(self.in_force, [base.version for base in self.bases])
            ready = ahead or (yield from self._work(clock + 1))

    def _work(self, clock: int) -> Body:
        """The mini-batches of one clock, with own steps between them where the policy has any."""
        usable, own, is_empty = list[Vector](), self.own, True
        steps, rows, has = self.policy.local_steps(self.speed), list["Row"](), ()
        if self.cluster.is_leased:
            lease = yield from self._lease(clock)
            rows, has = [(lease.stream, row) for row in lease.rows(clock)[:steps] if lease.stream != NOTHING], lease.has
            steps = len(rows)
            if not rows and not self.policy.rounds:
                yield _IDLE

        own.lr = self.lr
        for _ in range(steps):
            yield self.cluster.step_seconds(self.name)
            if self.cluster.is_blank(self.name, clock):
                continue

            is_empty = False
            gradient = self.cluster.gradient(self.name, clock, self.local)
            if not np.isfinite(gradient).all():
                continue

            usable.append(gradient)
            if self.stepper is not None:
                own.steps += 1
                self.stepper.step(own.local, own.local, gradient, 1.0, own.lr, own.slots, own.steps)

        if not is_empty:
            self._note(usable)
        newest = usable[-1] if usable else None
        examples = self.cluster.config.batch_size * len(usable)
        return Work(self.policy.outgoing(newest, own), examples, newest, list(self.bases), rows, has)

    def _lease(self, clock: int) -> Body:
        """As worker/training/way.py."""
        width = self.policy.most_steps
        for held in reversed(self._leases):
            if held.after < clock <= held.end and (held.width == width or held.stream == NOTHING):
                return held
        most = width * self.cluster.rng.choice([1, 2, 8, 32])

        def ask(run: Run) -> Lease:
            clocks = self.cluster.servers[0].slice.clocks
            return run.lease(Wish(self.name, clock - 1, width, most), self.incarnation, lambda: clocks)

        lease: Lease = yield from self.cluster.call_chief(ask)
        self._leases = [*self._leases[-7:], lease]
        return lease

    def _note(self, usable: Sequence[Vector]) -> None:
        """Notes the gradients of one clock that are finite as a real worker does: as one step."""
        newest = usable[-1] if usable else np.full(1, math.nan, np.float32)
        is_finite = bool(usable) and bool(np.isfinite(self.own.local).all())
        self.rows.stepped(Step(newest, math.nan, 1, is_finite, float(np.abs(newest).max(initial=0))))

    def _adopt(self, reply: Reply) -> Body:
        """A slice has begun another policy: this worker's half begins too, with the weights of now."""
        assert reply.switch is not None
        self.in_force.adopt(reply.switch)
        self.view = max(self.view, reply.view)
        yield from self._pull(reply.switch.version)
        if reply.switch.back:
            self.rows.go_back()
        self.begin(self.in_force)

    def _join(self) -> Body:
        def join(run: Run) -> int:
            return run.join(self.name, self.was_fenced, examples, steps, "", self.cluster.now)

        examples, steps = self.cluster.examples, self.cluster.steps
        while self.cluster.run.phase is not RunPhase.FINISHED:
            try:
                self.incarnation = yield from self.cluster.call_chief(join)
                return True
            except PoolFull:
                yield 1.0
        return False

    def _attach(self) -> Body:
        """This worker's standing on every slice; what was under way is abandoned."""
        for task in self.calls + self.catch_ups:
            task.stop()
        self.calls = []
        self.catch_ups = []
        self.behind = None
        self.may_differ = False
        self.catching_up.clear()
        standings = []
        for server in self.cluster.servers:
            standings.append((yield from self._resume(server)))
        return standings

    def _goes_back(self, standings: list[Standing], version: int, in_force: PolicyInForce) -> Body:
        """Where a slice no longer has the weights of this round: lets all servers go back; returns whether they have."""
        is_in_rounds = len(standings) > 1 and in_force.policy.rounds
        if not is_in_rounds or all(standing.oldest <= version for standing in standings):
            return False
        if not self.returns.help([(standing.term, standing.clock) for standing in standings]):
            self.may_differ = True
            return False
        ask = partial(self.cluster.go_back, self.name, self.incarnation, [standing.term for standing in standings])
        while True:
            found = yield from self.cluster.call_chief(lambda run: ask())
            if found is not None:
                self.cluster.gone_back += 1
                self.may_differ = not found
                return found
            yield 0.1

    def _check_level(self, in_force: PolicyInForce, versions: list[int]) -> None:
        if len(self.cluster.servers) > 1 and not self.may_differ:
            in_force.check_level(versions)

    def _resume(self, server: "Server") -> Body:
        standing = yield from self.cluster.call(server, lambda: server.resume(self.name, self.incarnation))
        self.terms[server.index] = standing.term
        self.counted[server.index] = standing.clock
        return standing

    def _bring_to(self, server: "Server", clock: int) -> Body:
        """Sends again what the slice lacks up to this clock; returns its own. Behind where that is not retained."""
        while server.index in self.catching_up:
            yield 0.05
        self.catching_up.add(server.index)
        try:
            while True:
                standing = yield from self._resume(server)
                clock = max(clock, self.answered[server.index])
                missing = [self.retained[server.index].get(each) for each in range(standing.clock + 1, clock + 1)]
                if not missing:
                    return standing.clock
                if None in missing:
                    raise Behind(f"{self.name} has no clock {standing.clock + 1} for server {server.index}")
                try:
                    for sent in filter(None, missing):
                        yield from self._until_answered(server, sent)
                except (Gap, NotYet):
                    yield 0.1
        finally:
            self.catching_up.discard(server.index)

    def _catch_up(self, server: "Server") -> Body:
        try:
            yield from self._bring_to(server, self.answered[server.index])
        except Behind as error:
            self.behind = error
        except Fenced:
            return

    def _until_answered(self, server: "Server", sent: Sent, whole: bool = True) -> Body:
        """Gap, NotYet: it has to be sent again. `whole`: the slice may lack it."""
        push = sent.push
        while True:
            box = Box()
            if whole:
                self.cluster.carry(partial(server.push, *sent, box), self.cluster.conditions.double)
            else:
                self.cluster.carry(partial(server.ask, self.name, self.incarnation, push.clock, box))
            answer = yield box, PATIENCE
            if answer is not None:
                if push.examples and answer[-1]:
                    book = self.cluster.acknowledged.setdefault((server.index, self.name), {})
                    book[push.clock] = answer[0].outcome
                return answer
            whole = False

    def _check_wanted(self) -> None:
        if self.behind is not None:
            raise self.behind

    def _take_seat(self, clock: int) -> Body:
        """The seat and the change of policy that it begins with, once the worker counts; None where the run ends before."""

        def take(run: Run) -> tuple[bool, RunPhase, View, Switch | None]:
            clocks = self.cluster.servers[0].slice.clocks
            seated = run.seat(self.name, self.incarnation, clock, lambda: clocks, self.cluster.now)
            return seated, run.phase, run.membership.view, run.membership.view.made

        while True:
            seated, phase, view, switch = yield from self.cluster.call_chief(take)
            if seated:
                self.view = view.number
                return view.seats[self.name], switch
            if phase not in (RunPhase.WAITING, RunPhase.TRAINING):
                return None
            yield 0.2

    def _pull(self, version: int | None = None) -> Body:
        for server, place in zip(self.cluster.servers, self.cluster.places, strict=True):
            found, wanted = None, version
            while found is None:
                self._check_wanted()
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
        self.calls = calls
        self.has_pulled = self.policy.pulls(clock)
        return calls

    def _end_exchange(self, calls: list[Task], ready: Work) -> Body:
        """Mixes what comes back, slice by slice; returns the replies."""
        replies = []
        for call, server, place in zip(calls, self.cluster.servers, self.cluster.places, strict=True):
            reply, version, weights, _ = yield from self._answer_of(call, calls)
            self._mix(place, reply, ready, weights)
            if self.has_pulled:
                self.bases[server.index] = Base(reply.term, version)
            replies.append(reply)
        self.tasks = [task for task in self.tasks if task not in calls]
        self.lr = replies[0].lr
        self.reached = max(self.reached, replies[0].clock)
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
        update = Empty(length) if whole_update is None else self.cluster.update_of(whole_update)
        examples, rows = ready.examples, ready.rows
        if server.index in ready.has:
            update, examples, rows = Empty(length), 0, ()
        base, switches = ready.bases[server.index], self.in_force.number
        is_new = whole = clock > self.counted[server.index]
        while True:
            push = Push(self.name, self.incarnation, clock, update, examples, base, self.view, self.cluster.now)
            sent = Sent(push, switches, rows)
            try:
                answer = yield from self._until_answered(server, sent, whole)
                if answer[0].term >= self.terms[server.index]:
                    break
            except (Gap, NotYet) as error:
                yield 0.01 if isinstance(error, Gap) else 0.1
            whole = (yield from self._bring_to(server, clock - 1)) < clock
        self.answered[server.index] = clock
        self.counted[server.index] = max(clock, self.counted[server.index])
        if answer[0].outcome is Outcome.DROPPED:
            sent = sent._replace(push=replace(push, update=Empty(length), dropped=True))
        self._retain(server.index, answer[0].durable, sent if is_new else None)
        return answer

    def _retain(self, server: int, durable: int, sent: Sent | None) -> None:
        """As paceline/worker/exchange/retained.py: a queue by clock, without gaps; beyond its cap the oldest go."""
        kept = self.retained[server]
        if sent is not None and self.most_retained != 0:
            if kept and sent.push.clock != max(kept) + 1:
                kept.clear()
            kept[sent.push.clock] = sent
        for each in sorted(kept):
            if each <= durable or (self.most_retained is not None and len(kept) > self.most_retained):
                del kept[each]

    def _beat(self) -> Body:
        while True:
            yield self.cluster.config.heartbeat
            if self.is_silent:
                continue
            figures = dict(self.rows.figures())
            report = WorkerReport(self.reached, self.phase, figures=figures, reached=self.reached)

            def beat(run: Run, report: WorkerReport = report) -> None:
                clock = self.cluster.servers[0].slice.clocks.entry(self.name).clock
                run.beat(self.name, self.incarnation, report, self.cluster.now, clock)
                run.give_up(lambda: self.cluster.servers[0].slice.clocks, self.cluster.now)

            try:
                yield from self.cluster.call_chief(beat, is_repeated=False)
            except Fenced:
                self.stop()
                self.cluster.after(1.0, lambda: self.cluster.start_worker(self.name, was_fenced=True))
            for server in self.cluster.servers:
                if self.terms[server.index] not in (0, server.term) and server.index not in self.catching_up:
                    self.catch_ups.append(Task(self.cluster, self._catch_up(server)))

    def leave(self, finished: bool) -> Body:
        yield from self.cluster.call_chief(
            lambda run: run.leave(self.name, self.incarnation, finished, self.cluster.now)
        )
        self.stop()
