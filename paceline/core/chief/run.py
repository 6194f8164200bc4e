"""The life of one training as the chief sees it: waiting, training, stopping, scoring, finished."""

import math
from collections.abc import Mapping
from typing import Any

from paceline.core.chief.budget import Budget, Milestones, all_but
from paceline.core.chief.common_snapshots import CommonSnapshots
from paceline.core.chief.leases import Lease, Pace, Wish, with_all_servers_alike
from paceline.core.chief.leasing import Leasing
from paceline.core.chief.membership import ROUNDS_AHEAD, Membership
from paceline.core.chief.other_servers import OtherServers
from paceline.core.chief.phases import Phases, RunPhase
from paceline.core.chief.policy_change import PolicyChange
from paceline.core.chief.policy_choice import PolicyChoice
from paceline.core.chief.rollback import Divergence
from paceline.core.chief.scoring import Score, Scoring
from paceline.core.chief.stopping import CommonStopping, settled
from paceline.core.chief.warnings import Warnings
from paceline.core.chief.workers import WorkerPhase, WorkerReport, Workers
from paceline.core.errors import NotYet
from paceline.core.policies.clocks import Clocks, Reading
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config, Options
from paceline.core.values import worker_order

_FIRST_SNAPSHOT = 2.0
"""Training time in which servers may still be writing their first weights, to which a run could go back (seconds)."""


class Run:
    """The chief's state machine: callers report events, and its parts hold the run's state. It decides what concerns more than
    one part. Callers pass the time (seconds on any steady clock). Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self.config = config
        policy = build_policy(config.policy)
        self._has_alternatives = bool(policy.alternatives)
        self.phases = Phases()
        self.membership = Membership(
            config.workers,
            config.lease,
            policy.rounds,
            config.on_lost_worker == "wait",
            config.start_when or 0,
            config.start_timeout,
        )
        self.workers = Workers(self.membership)
        self.budget = Budget(config)
        self.scoring = Scoring(config.evaluate_every, config.scored_by == "worker")
        self.common_stopping = CommonStopping(config)
        self.policy_change = PolicyChange(config, self.membership)
        self.policy_choice = PolicyChoice(config, self.policy_change.checked)
        self.warnings = Warnings(config)
        self.divergence = Divergence(config)
        self.other_servers = OtherServers(config.servers)
        self.leasing = Leasing(config.workers, self.membership, self.other_servers)
        self.common_snapshots = CommonSnapshots(config.servers, config.checkpoint.at is not None)
        self._judged: tuple[Options, int] | None = None
        """The policy and the number of members that warnings know."""
        self._lacks = 0
        """How many examples fewer the slice that got the least has than the chief's."""
        self._has_published = False
        """Whether this chief has published a view yet."""
        self._round = 0.0
        """Examples of the last round that has closed on the chief's slice."""

    @property
    def phase(self) -> RunPhase:
        return self.phases.phase

    @property
    def reason(self) -> str:
        """Why the run stops."""
        return self.phases.reason

    @property
    def policy(self) -> Options:
        """The present policy, or the one that the run is changing to."""
        return self.policy_change.policy

    # workers
    def join(
        self,
        worker: str,
        was_fenced: bool,
        examples: int,
        steps: int,
        fingerprint: str,
        now: float,
        address: str = "",
        host: str = "",
    ) -> int:
        """Admits a worker whose shards hold `examples` in all and take `steps` an epoch; all must have the same data."""
        self.budget.agree(worker, examples, steps, fingerprint)
        incarnation = self.membership.join(worker, was_fenced, now)
        self.membership.end_vain_waits(now, self._is_steady)
        self.membership.examples_per_epoch = examples
        self.workers.joined(worker, address, now, host)
        return incarnation

    def seat(self, worker: str, incarnation: int, clock: int, clocks: Reading, now: float) -> bool:
        """A worker is ready to train from `clock` on; returns whether it already counts."""
        if self.phase is RunPhase.WAITING:
            self.membership.candidate(worker, incarnation, clock, now)
            self._maybe_start(now)
        elif self._may_seat(worker, clock):
            self._give_seat(worker, incarnation, clock, clocks(), now)
        seat = self.membership.view.seats.get(worker)
        return seat is not None and seat.incarnation == incarnation

    def _give_seat(self, worker: str, incarnation: int, clock: int, clocks: Clocks, now: float) -> None:
        """Seats a worker; in rounds no server closes the one before its first without its view."""
        is_new = worker not in self.membership.view.seats
        start = self.other_servers.start_of(clocks.version)
        self.membership.seat(worker, incarnation, clock, self.budget.last_clock(self.policy), clocks, now, start)
        if is_new and self.membership.rounds:
            self.other_servers.keep_open(self.membership.view.number, start)

    def _may_seat(self, worker: str, clock: int) -> bool:
        """A taken seat may change hands until the end; a new seat needs to know how far the others are. A process with
        nothing left to do before the policy changes waits for the change."""
        seat = self.membership.view.seats.get(worker)
        if seat is None:
            return self._is_steady
        has_work = seat.switch_clock is None or clock < seat.switch_clock
        return self.phase in (RunPhase.TRAINING, RunPhase.STOPPING) and has_work

    @property
    def _is_steady(self) -> bool:
        """Whether the run trains, knows how far its members are, and is not changing its policy. Only then does it seat new
        workers and name clocks."""
        is_clear = self.workers.are_caught_up and not self.policy_change.is_under_way
        return self.phase is RunPhase.TRAINING and is_clear

    def lease(self, wish: Wish, incarnation: int, clocks: Reading) -> Lease:
        """The mini-batches of a member's next clocks; Fenced if it is none."""
        self.membership.check_seat(wish.worker, incarnation)
        found = clocks()
        self.trained(found.trained, found.gone, found.round_examples)  # of the same moment as the marks
        is_own = self._ends_by_itself and wish.rows
        self.leasing.ends_at(wish.rows if is_own else self.config.epochs * self.budget.steps_per_epoch)
        is_level = self.membership.rounds or self.config.budget == "per_worker"
        pace = Pace(is_level=is_level, is_exact=self.budget.is_spent() or self._ends_by_itself)
        return self.leasing.lease(wish, pace, found.marks())

    def beat(self, worker: str, incarnation: int, report: WorkerReport, now: float, clock: int = 0) -> None:
        """Renews a worker's lease; `clock`: its clock on the chief's slice. A worker that beats but makes no step for
        `stall_timeout` has to leave."""
        self.membership.beat(worker, incarnation, now, max(report.clock, clock), report.stopping)
        self.workers.heard(worker, report, clock)
        self.policy_choice.heard(worker, report)
        self.warnings.large_inputs = report.large_inputs or self.warnings.large_inputs
        self.warnings.heard(worker, report.figures, self.membership.view.seats, self.budget.epochs, report.clock)
        self._judge_policy()
        if report.phase == WorkerPhase.FINISHED and self.phase is RunPhase.TRAINING and self._ends_by_itself:
            self.membership.name_end(worker, report.clock)
        if report.phase in (WorkerPhase.DATA, WorkerPhase.COMPUTE) and report.phase_seconds > self.config.stall_timeout:
            self.membership.leave(worker, incarnation)

    def _judge_policy(self) -> None:
        """Lets warnings know the policy and the number of its members, where these are others than before."""
        judged = self.policy, len(self.membership.view.seats)
        if judged != self._judged and self._is_steady:
            self._judged = judged
            self.warnings.trains(build_policy(self.policy), judged[1], self.budget.epochs)

    def stop_signal(self, worker: str, incarnation: int, now: float) -> None:
        """A worker got a stop signal, and leaves soon."""
        self.membership.stop_signal(worker, incarnation, now)

    @property
    def _ends_by_itself(self) -> bool:
        """Whether each worker ends when its script does. Fast ones take over from slow ones only once the policy has changed
        to one that lets them."""
        if not self.config.is_script:
            return False
        is_first = self.membership.view.switch is None and self._has_alternatives
        return self.config.budget == "per_worker" or is_first

    def leave(self, worker: str, incarnation: int, finished: bool, now: float, was_told: bool = False) -> None:
        """A worker has finished its last clock, can't go on, or `was_told` to stop before that."""
        if was_told and not finished:
            self.membership.stop_signal(worker, incarnation, now, has_left=True)
        else:
            self.membership.leave(worker, incarnation, finished)
        if finished:
            self.workers.finished.add(worker)
        self._maybe_all_left(now)

    def capped(self, shares: Mapping[str, float]) -> None:
        """The share of each worker's last pushes above push_norm_cap (ratio); see `Warnings.capped`. Once a worker has
        finished, the others are not compared any more."""
        if self.phase is RunPhase.TRAINING and not self.workers.finished:
            self.warnings.capped(shares, self.membership.view.seats, self.budget.epochs)

    # how it ends
    def trained(self, examples: int, gone: int, in_round: float) -> None:
        """Takes over what the chief's slice has counted: examples, those of them of workers that are no members, and those of
        its last round. The budget is that of the slice that got the least, where a worker has left for good before all had
        its pushes."""
        self._lacks = self.other_servers.lacks(gone, self.membership.view.number)
        if self.leasing.number:  # others compute the rest, until the end is named
            is_training = self.phase is RunPhase.TRAINING
            self._lacks = self.leasing.lacks * self.config.worker_batch if is_training else 0
        self.budget.examples = examples - self._lacks
        self._round = in_round

    @property
    def milestones(self) -> Milestones:
        """At which examples of its slice the chief has to look at it."""
        may_end = self._may_end and not self._ends_by_itself
        score = self.scoring.next_due * self.budget.examples_per_epoch
        return Milestones(
            self._lacks + (score if score > self.budget.examples else math.inf),
            self._lacks + (self.budget.end if may_end else math.inf),
            self._rounds_to_the_end,
        )

    def counted(self, clocks: Clocks, now: float) -> None:
        """The chief's slice has counted pushes, and stands still: the budget may be spent. In rounds that is looked at when one
        has closed, so that each run of the same settings ends with the same round; a slice that is back from a snapshot
        comes by that round again, and no other slice is further."""
        self.trained(clocks.trained, clocks.gone, clocks.round_examples)
        is_near = self.milestones.may_end(clocks) and self._is_between_rounds(clocks)
        if is_near and (not self.membership.rounds or self._rounds_left(clocks) <= ROUNDS_AHEAD):
            self._name_ends("the budget of epochs is spent", lambda: clocks, now)

    def _rounds_left(self, clocks: Clocks) -> float:
        """How many rounds it takes until all mini-batches of the epochs are done; 0 where they are not leased."""
        steps, marks = build_policy(self.policy).most_steps, clocks.marks()
        if self.config.is_script:  # whose leases count mini-batches
            return self.leasing.clocks_left(marks, 1) / steps
        return self.leasing.clocks_left(marks, steps)

    def _is_between_rounds(self, clocks: Clocks) -> bool:
        """Whether no round is open, as is always so of a policy without rounds."""
        return not self.membership.rounds or all(clocks.progress(each) <= clocks.version for each in clocks.members)

    def validated(self, worker: str, epoch: int, loss: float, examples: int, clocks: Reading, now: float) -> None:
        """A worker has ended `epoch` of its shard (from 0) with this loss on the examples that it keeps back. Once all members
        have ended another epoch, the mean of their newest losses may end the run (svm.stop: all)."""
        if self.phase is RunPhase.TRAINING and self.common_stopping.looks_at(epoch):
            self.common_stopping.add(worker, epoch, loss, examples)
            self._maybe_settled(clocks, now)

    def _maybe_settled(self, clocks: Reading, now: float) -> None:
        """Ends the run if the losses that all members have reported have settled."""
        if self.phase is not RunPhase.TRAINING or not self.workers.are_caught_up:
            return
        why = self.common_stopping.judge(self.membership.view.seats.keys())
        if why and not self.policy_change.is_under_way:
            self.stop(why, clocks, now)

    def give_up(self, clocks: Reading, now: float) -> None:
        """Lets a run that has diverged go back to good weights, or ends it: one that can no longer learn would never end, since
        only examples that are learned from count."""
        if not self._is_steady:
            return
        self.look_after_good(now)
        seats, refusal = self.membership.view.seats, self.divergence.refusal
        diverged = self.warnings.diverged(seats) if self.divergence.is_on else ""
        if diverged and not refusal:
            self._roll_back(diverged, clocks)
        elif diverged and self._may_go_back_soon(now):
            return
        elif why := self.warnings.hopeless(seats) or (diverged if self.divergence.done else ""):
            self.stop(f"{why}; {refusal}" if self.divergence.is_on else why, clocks, now)
            self.divergence.gave_up = True

    def _may_go_back_soon(self, now: float) -> bool:
        found = self.divergence
        return found.may_find or (found.good is None and self.phases.seconds(now) < _FIRST_SNAPSHOT)

    def _roll_back(self, why: str, clocks: Reading) -> None:
        epoch = self.budget.epochs
        point, said = self.divergence.go_back()
        self.scoring.go_back(point.epoch)
        self.divergence.begins_again(self.policy_change.roll_back(point.versions, self.divergence.rate, clocks()))
        seats = self.membership.view.seats.items()
        ends = {worker: seat.switch_clock or 0 for worker, seat in seats}
        self.warnings.rolled_back(f"{why}: the run {said}", ends, self.divergence.done, epoch)

    def look_after_good(self, now: float) -> None:
        """Notes which snapshots a run that diverges could go back to."""
        seats, reports = self.membership.view.seats, self.workers.reports
        is_well = self._is_steady and self.warnings.is_well(seats)
        clocks = {worker: reports[worker].clock for worker in seats if worker in reports}
        self.divergence.look(is_well, self.membership.rounds, self.budget.epochs, now, clocks)

    def stop_early(self, clocks: Reading, now: float) -> None:
        """Ends the run where its scores are reason enough (`stopping`), or its members' losses: the one that the others waited
        for may have left."""
        unit = "step" if self.budget.steps else "epoch"
        if self._is_steady and (why := settled(self.config.stopping, self.scoring.judged, unit)):
            self.stop(why, clocks, now)
        self._maybe_settled(clocks, now)

    def stop(self, reason: str, clocks: Reading, now: float) -> None:
        """Names everybody's last clock. A run that has not started has nothing to score and is finished at once. NotYet
        while the chief does not know how far its members are."""
        if self.phase is RunPhase.WAITING:
            self.phases.enter(RunPhase.FINISHED, now, f"{reason}; unscored: nothing was trained")
        elif self.phase is RunPhase.TRAINING:
            if not self.workers.are_caught_up:
                raise NotYet("The chief has just restarted and waits for its workers; ask again in a few seconds.")
            if self.policy_change.is_under_way:
                raise NotYet("The policy is just changing; ask again in a few seconds.")
            self._name_ends(reason, clocks, now)

    def extend(self, clocks: Reading, now: float) -> bool:
        """Lets a run that was given more epochs train them: one that is over waits for its workers again. Returns whether it
        does so from now on; a run that is stopping stops first."""
        if not self.budget.has_grown or self.phase is RunPhase.STOPPING:
            return False
        self.budget.take_goal()
        self.scoring.judge_anew()
        self.common_stopping.judge_anew()
        if self.phase is RunPhase.TRAINING and (last := self.budget.last_clock(self.policy)) is not None:
            self.membership.rename_ends(last)
        if self.phase not in (RunPhase.SCORING, RunPhase.FINISHED):
            return False
        self.phases.enter(RunPhase.WAITING, now)
        self.divergence.gave_up = False
        self.membership.begin_anew(clocks())
        self.workers.begin_anew()
        return True

    @property
    def _is_near_the_end(self) -> bool:
        """Whether the budget is spent, or will be by the first round that can still be named as the last one, if rounds stay
        as large; a member that leaves before it takes its part of these along."""
        return self.budget.is_spent(round(self._rounds_to_the_end * self._round))

    @property
    def _rounds_to_the_end(self) -> int:
        """How many rounds come before one that can be named as the last."""
        return ROUNDS_AHEAD if self.membership.rounds else 0

    @property
    def _may_end(self) -> bool:
        """Whether a spent budget may end the run now."""
        if not self.membership.rounds:
            return self._is_steady
        return self.phase is RunPhase.TRAINING and not self.policy_change.is_under_way

    def _name_ends(self, reason: str, clocks: Reading, now: float) -> None:
        found = clocks()
        self.phases.enter(RunPhase.STOPPING, now, "; ".join([reason, *self._left_behind(found)]))
        self.membership.stop(found)
        self._maybe_all_left(now)

    def _left_behind(self, clocks: Clocks) -> list[str]:
        """What workers that have left took along, in words, where nobody takes over from them."""
        if self.leasing.number or self.budget.steps or len(self.membership.view.seats) >= self.config.workers:
            return []
        share = self.budget.total // self.config.workers
        gone = {worker: clocks.entry(worker).examples for worker in clocks.table if worker not in clocks.view.seats}
        return [
            f"nobody has trained the rest of {worker}'s {share:,} examples, which left after {examples:,} (data.leases)"
            for worker, examples in gone.items()
            if examples < share and worker not in self.workers.finished
        ]

    def _maybe_all_left(self, now: float) -> None:
        """No seat is taken any more: the run is over, unless a worker that lost its seat may still come back."""
        self.workers.note_seatless(now)
        if self.membership.view.seats:
            return
        if self.phase is RunPhase.STOPPING:
            self.phases.enter(RunPhase.SCORING, now)
        elif self.phase is RunPhase.TRAINING and self.workers.finished and not self.awaited(now):
            budget = self.budget
            left, early = self.workers.unfinished, self.workers.ended_early
            why = all_but(left, budget.examples, budget.total, budget.steps, early)
            self.phases.enter(RunPhase.SCORING, now, why)

    def awaited(self, now: float) -> list[str]:
        """Workers without which the run does not end, where all others have finished: each may come back for
        `start_timeout`. Without servers nobody would have the model for them."""
        is_deserted = self.phase is RunPhase.TRAINING and self.workers.finished and not self.membership.view.seats
        may_come = is_deserted and self.config.servers
        return self.workers.awaited(now, self.config.start_timeout) if may_come else []

    # a change of policy
    def switch(self, policy: Options, clocks: Reading) -> None:
        """Lets a new policy begin as soon as every member has reached a clock named now
        (docs/understand/rounds.md#changes-of-policy). ConfigError if it conflicts with the run's other settings; NotYet
        if the run can't do it at the moment."""
        if not self._is_steady:
            raise NotYet(f"The run is {self.phase}, or it restarts or changes its policy. Try again while it trains.")
        self.policy_change.begin(policy, clocks())
        self.policy_choice.follow(self.policy)

    def choose_policy(self, clocks: Reading, now: float) -> Options | None:
        """Lets another policy begin where the run's own has alternatives, and one of them is better now. Returns it."""
        if not self.policy_choice.is_on:
            return None
        if not self._is_steady:
            self.policy_choice.wait()
            return None
        seats, trained = self.membership.view.seats, self.budget.share
        left = self.phases.seconds(now) * (1 - trained) / trained if trained else 0.0
        members = {(worker, seat.incarnation) for worker, seat in seats.items()}
        policy = self.policy_choice.choose(self.policy, members, left, now)
        if policy is not None:
            self.policy_change.begin(policy, clocks())
        return policy

    def maybe_switched(self, made: int) -> bool:
        """Ends the change of policy once every slice has made it; returns whether it has ended just now. `made`: the number
        of the change that the chief's slice has made last."""
        switch = self.membership.view.switch
        if switch is None or not self.policy_change.is_under_way:
            return False
        if made < switch.number or not self.other_servers.have_made(switch.number):
            return False
        self.switched()
        return True

    def switched(self) -> None:
        """The new policy has begun on every slice."""
        self.policy_change.end()

    # the other servers
    def publish(self, version: int) -> None:
        """The newest view is on its way to the other servers; `version`: of the chief's slice. A chief that has just been
        started does not know in which round the members of its view begin, but in none before the next one."""
        if self.membership.rounds:
            first = version + (ROUNDS_AHEAD if self._has_published else 1)
            self.other_servers.keep_open(self.membership.view.number, first)
        self._has_published = True

    @property
    def is_followed(self) -> bool:
        """Whether every other server has said that it follows the newest view."""
        return self.other_servers.follow(self.membership.view.number)

    @property
    def open_from(self) -> int | None:
        """The first round that the chief's slice keeps open while a view (docs/understand/rounds.md#rounds-that-stay-open) or
        the name of a common snapshot is on its way to the other servers; None if it keeps none open."""
        common = self.common_snapshots
        firsts = [self.other_servers.open_from, None if common.is_known else common.due]
        return min((first for first in firsts if first is not None), default=None)

    # common snapshots
    def name_snapshot(self, clocks: Reading, pause: float, now: float) -> bool:
        """In rounds, names the version of the next snapshot of all servers if it is time to; returns whether it did. `pause`:
        between two snapshots (seconds)."""
        if not self.membership.rounds or self.phase is not RunPhase.TRAINING or self.policy_change.is_under_way:
            return False
        common = self.common_snapshots
        return common.is_time(pause, now) and common.name(clocks().version, self.workers.furthest, pause, now)

    # evaluator
    def ready(self, now: float) -> None:
        """The evaluator has its data."""
        self.scoring.is_ready = True
        self._maybe_start(now)

    def due_score(self) -> tuple[int, bool] | None:
        """(epoch, final) that the evaluator should score next; None while there is nothing new. The final one is due once
        every server follows the last view, for a slice folds what it has buffered when it learns that nobody is left."""
        if self.phase is RunPhase.SCORING:
            epoch = max(self.budget.epoch, self.config.epochs if self._is_near_the_end else 0)
            return (epoch, True) if self.is_followed else None
        if self.scoring.by_worker:
            return None
        is_training = self.phase is RunPhase.TRAINING and not self.policy_change.goes_back
        return (self.budget.epoch, False) if is_training and self.scoring.is_due(self.budget.epoch) else None

    def due_midway(self, ended: int) -> int | None:
        """The epoch that the version now counts as, if a worker whose script has `ended` that many should score; None: it
        should not, or the final score is near. Its own counts where each worker has its own: others' pushes may be of the next
        round already. Where a fast worker takes over, or the run went back, which a script can't, it is what all have done."""
        is_own = self._ends_by_itself and not self.divergence.done
        epoch = ended if is_own else round(self.budget.epochs)
        is_training = self.phase is RunPhase.TRAINING and not self.policy_change.goes_back
        return epoch if is_training and epoch < self.config.epochs and self.scoring.is_new(epoch) else None

    def score(self, score: Score, now: float) -> None:
        """The evaluator reports; the final score ends the run."""
        went_back = self.divergence.done > 0 and score.epoch > self.budget.epoch
        self.scoring.add(score, is_gone=not score.final and (went_back or self.policy_change.goes_back))
        steps = score.epoch * self.budget.steps_per_epoch
        self.warnings.scored(score.metrics, score.epoch, steps, score.final)
        if score.final and self.phase is RunPhase.SCORING:
            self.phases.enter(RunPhase.FINISHED, now)

    # time
    def tick(self, now: float) -> list[str]:
        """Lets time pass: leases, start and scoring time-outs. Returns workers whose lease lapsed."""
        lapsed = self.membership.tick(now, self._is_steady)
        if self.phase is RunPhase.WAITING and not self.membership.candidates:
            self.phases.wait_anew(now)  # `start_timeout` counts from the first worker on: the data may still be read
        waited = self.phases.waited(now)
        if self.phase is RunPhase.WAITING and waited > self.config.start_timeout and self.membership.candidates:
            self._start(now)
        if self.phase is RunPhase.SCORING and waited > self.config.score_timeout:
            self.phases.enter(RunPhase.FINISHED, now, "unscored: no score came in time")
        self._maybe_all_left(now)
        return lapsed

    def missing(self) -> list[str]:
        """What the run waits for before it starts, in words."""
        here = sorted(self.membership.candidates, key=worker_order)
        joining = sorted(set(self.membership.places) - set(here), key=worker_order)
        words = []
        if len(here) < self._needed:
            who = f"ready: {', '.join(here) or 'none'}; joining: {', '.join(joining) or 'none'}"
            words.append(f"{self._needed - len(here)} of {self._needed} workers ({who})")
        if not self.scoring.is_ready:
            words.append("the evaluator's data")
        return words

    def _maybe_start(self, now: float) -> None:
        is_complete = len(self.membership.candidates) >= self._needed and self.scoring.is_ready
        if self.phase is RunPhase.WAITING and is_complete:
            self._start(now)

    @property
    def _needed(self) -> int:
        """Workers that the run waits for before it starts."""
        return self.config.start_when or self.config.workers

    def _start(self, now: float) -> None:
        last = self.budget.last_clock(self.policy)
        lasts = dict.fromkeys(self.membership.candidates, last) if last is not None else {}
        self.membership.start(lasts, now)
        self.workers.started()
        self.phases.enter(RunPhase.TRAINING, now)

    # snapshots
    def state(self) -> dict[str, Any]:
        """The state that a restarted chief needs besides its slice's snapshot, as plain JSON values."""
        parts = (
            self.phases,
            self.budget,
            self.scoring,
            self.common_stopping,
            self.workers,
            self.common_snapshots,
            self.divergence,
            self.policy_choice,
            self.leasing,
        )
        found = {key: value for part in parts for key, value in part.state().items()}
        return found | {"membership": self.membership.state(), "watch": self.warnings.state()}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Continues from `state`, without waiting for a start again."""
        self.membership.restore(state["membership"], now)
        self.policy_change.restore()
        self.workers.restore(state, now)
        self.budget.restore(state)
        self.scoring.restore(state)
        self.common_stopping.restore(state)
        self.common_snapshots.restore(state)
        self.divergence.restore(state)
        self.policy_choice.restore(state)
        self.leasing.restore(state)
        self.warnings.restore(state.get("watch", {}))
        self.phases.restore(state, now)


def with_servers(state: dict[str, Any], servers: int) -> dict[str, Any]:
    """Returns what `Run.state` gave, for a run that goes on with this many servers, each with the same moment's snapshot: none
    has an order to follow, a run that diverges has nothing older to go back to, and what one lacks all get."""
    number, version, _ = state.get("back", (0, 0, ()))
    leases = with_all_servers_alike(state.get("leases", {}))
    divergence = {**state.get("divergence", {}), "good": None}
    return {**state, "back": [number, version, list(range(servers))], "divergence": divergence, "leases": leases}
