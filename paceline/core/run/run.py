"""The life of one training as the chief sees it: waiting, training, stopping, scoring, finished."""

from dataclasses import asdict
from enum import StrEnum
from typing import Any

from paceline.core.errors import ConfigError, DataError, NotYet
from paceline.core.run.best_model import result
from paceline.core.run.membership import Membership
from paceline.core.run.report import Score as Score
from paceline.core.run.report import WorkerReport as WorkerReport
from paceline.core.run.watch import Watch
from paceline.core.settings.config import Config, Options
from paceline.core.steps.optimizer import build_optimizer
from paceline.core.sync.clocks import Clocks
from paceline.core.sync.policy import build_policy
from paceline.core.values import worker_order


class RunPhase(StrEnum):
    """Where the run is."""

    WAITING = "waiting"
    """For workers and for the evaluation data."""
    TRAINING = "training"
    STOPPING = "stopping"
    """The last clocks are named; workers reach them and leave."""
    SCORING = "scoring"
    """The evaluator scores the final version."""
    FINISHED = "finished"


class Run:
    """The chief's state machine; time (seconds on any steady clock) is handed in. Not thread-safe."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.phase = RunPhase.WAITING
        self.membership = Membership(
            config.workers, config.lease, build_policy(config.policy).rounds, config.on_lost_worker == "wait"
        )
        self.examples_per_epoch = 0
        self.policy = config.policy
        """The policy that trains now, or that begins once all have reached their hold."""
        self.examples = 0
        self.scores: list[Score] = []
        self.reports: dict[str, WorkerReport] = {}
        self.evaluator_ready = False
        self.skipped_scores = 0
        self.watch = Watch(config)
        self.reason = ""
        """Why the run stops."""
        self._since: float | None = None
        """When the present phase began."""
        self._started: float | None = None
        self._trained = 0.0
        self._steps_per_epoch = 0
        self._fingerprint = ""
        self.validation_losses: list[float] = []
        """The mean over all members after each epoch, where these stop together."""
        self._losses: dict[str, tuple[float, int]] = {}
        """Newest loss of each worker since the last mean was taken, and the examples behind it."""
        self._validated: dict[str, int] = {}
        """Newest epoch of each worker that has a loss."""
        self._finished: set[str] = set()
        """Workers that have left with their last clock behind them."""
        self._deserted: float | None = None
        """Since when nobody has a seat."""
        self._addresses: dict[str, str] = {}
        self.founders: dict[str, int] = {}
        """Incarnations of the workers that the run began with."""
        """Where each worker that has joined serves its local model; empty where it does not."""

    # workers
    def join(
        self, worker: str, was_fenced: bool, examples: int, steps: int, fingerprint: str, now: float, address: str = ""
    ) -> int:
        """Admits a worker whose shards hold `examples` in all and take `steps` an epoch; all must have the same data."""
        if self.examples_per_epoch and (examples, steps, fingerprint) != self._facts():
            raise DataError(
                f"{worker} trains on other shards: {examples:,} examples in {steps:,} steps an epoch, the run has "
                f"{self.examples_per_epoch:,} in {self._steps_per_epoch:,}. Point all workers at the same shards."
            )
        if not examples:
            raise ConfigError(f"{worker} has no training examples; write shards first: paceline shard.")
        incarnation = self.membership.join(worker, was_fenced, now)
        self.examples_per_epoch, self._steps_per_epoch, self._fingerprint = examples, steps, fingerprint
        self.membership.examples_per_epoch = examples
        self.reports[worker] = WorkerReport(seen=now)
        self._addresses[worker] = address
        return incarnation

    def seat(self, worker: str, incarnation: int, clock: int, clocks: Clocks, now: float) -> bool:
        """A worker is ready to train from `clock` on; returns whether it counts already."""
        if self.phase is RunPhase.WAITING:
            self.membership.candidate(worker, incarnation, clock, now)
            self._maybe_start(now)
        elif self._may_seat(worker, clock, clocks):
            self.membership.seat(worker, incarnation, clock, self._last_clock(), clocks, now)
        seat = self.membership.view.seats.get(worker)
        return seat is not None and seat.incarnation == incarnation

    def beat(self, worker: str, incarnation: int, report: WorkerReport, now: float) -> None:
        """Keeps a worker's lease. One that beats but makes no step for `stall_timeout` has to leave."""
        self.membership.beat(worker, incarnation, now)
        self.reports[worker], seats = report, self.membership.view.seats
        self.watch.heard(worker, report.figures, seats, self.examples / max(1, self.examples_per_epoch))
        if report.phase in ("data", "compute") and report.phase_seconds > self.config.stall_timeout:
            self.membership.leave(worker, incarnation)

    def leave(self, worker: str, incarnation: int, finished: bool, now: float) -> None:
        """A worker has finished its last clock, or was told to stop before that."""
        self.membership.leave(worker, incarnation, finished)
        if finished:
            self._finished.add(worker)
        self._maybe_all_left(now)

    def counted(self, clocks: Clocks, now: float) -> None:
        """Pushes were counted on the chief's slice: the budget may be spent."""
        self.examples = clocks.examples
        if self._losses and self.phase is RunPhase.TRAINING:
            self._judge(clocks, now)  # somebody who was waited for may have left
        spent = self.examples >= self.budget and not clocks.is_recovering
        if self.phase is RunPhase.TRAINING and self.config.budget == "total" and spent and not self.is_switching:
            self.stop("the budget of epochs is spent", clocks, now)

    def give_up(self, clocks: Clocks, now: float) -> None:
        """Ends a run that can't learn any more: only examples that are learned from count, so it would never end."""
        may_stop = self.phase is RunPhase.TRAINING and not clocks.is_recovering and not self.is_switching
        if may_stop and (why := self.watch.hopeless(self.membership.view.seats)):
            self.stop(why, clocks, now)

    def stop(self, reason: str, clocks: Clocks, now: float) -> None:
        """Names everybody's last clock. A run that has not started has nothing to score and is finished at once. NotYet
        while the chief does not know how far its members are."""
        if self.phase is RunPhase.WAITING:
            self.reason = f"{reason}; unscored: nothing was trained"
            self._enter(RunPhase.FINISHED, now)
        elif self.phase is RunPhase.TRAINING:
            if clocks.is_recovering:
                raise NotYet("The chief has just restarted and waits for its workers; ask again in a few seconds.")
            if self.is_switching:
                raise NotYet("The policy is just changing; ask again in a few seconds.")
            self.reason = reason
            self._enter(RunPhase.STOPPING, now)
            self.membership.stop(clocks)
            self._maybe_all_left(now)

    def validated(self, worker: str, epoch: int, loss: float, examples: int, clocks: Clocks, now: float) -> None:
        """A worker has ended an epoch of its own (from 0) with this loss on the examples that it keeps back. Once all members
        have ended another one, the mean of their newest losses may end the run (svm.stop: all)."""
        is_judged = self.config.svm.stop == "all" and self.config.svm.judges(epoch, self.config.epochs)
        if self.phase is not RunPhase.TRAINING or not is_judged:
            return
        if epoch > self._validated.get(worker, -1):
            self._validated[worker], self._losses[worker] = epoch, (loss, examples)
        self._judge(clocks, now)

    def _judge(self, clocks: Clocks, now: float) -> None:
        """Ends the run where the losses that all members have given have settled."""
        members, stopping = self.membership.view.seats.keys(), self.config.svm.stopping
        have_all_told = members and self._losses.keys() >= members
        if stopping is None or clocks.is_recovering or not have_all_told:
            return
        found, self._losses = self._losses.values(), {}
        weight = sum(count for _, count in found)
        self.validation_losses.append(sum(loss * count for loss, count in found) / max(1, weight))
        rule = stopping.build(build_optimizer(self.config.optimizer).lr)
        if any(rule.add(each) for each in self.validation_losses) and not self.is_switching:
            self.stop(f"the validation loss has settled at {self.validation_losses[-1]:.6g}", clocks, now)

    @property
    def fastest(self) -> float:
        """Examples per second of computation of the fastest member; 0 while nobody has said."""
        reports = (self.reports[worker] for worker in self.membership.view.seats if worker in self.reports)
        return max((report.figures.get("compute_rate", 0.0) for report in reports), default=0.0)

    # a change of policy
    @property
    def is_switching(self) -> bool:
        """Whether members are on their way to the clock at which a new policy begins."""
        return self.membership.is_switching

    def switch(self, policy: Options, clocks: Clocks) -> None:
        """Lets a new policy begin as soon as every member has reached a clock that is named now
        (docs/protocol.md#changes-of-policy). ConfigError where it doesn't go with the run's other settings; NotYet
        where the run can't do it just now."""
        if self.phase is not RunPhase.TRAINING or clocks.is_recovering or self.is_switching:
            raise NotYet(f"The run is {self.phase}, or just restarting or changing; the policy is changed in training.")
        if not self.config.servers:
            raise ConfigError(
                "A run without servers keeps its policy: workers can't change it in mid-run. Start a new run."
            )
        old, new = build_policy(self.policy), build_policy(policy)
        new.check(self.config.model_copy(update={"policy": policy}))
        run_optimizer = build_optimizer(self.config.optimizer)
        before, after = old.server_optimizer(run_optimizer), new.server_optimizer(run_optimizer)
        if before != after and (before.slots or after.slots):
            raise ConfigError(
                f"Policy {policy.name} can't follow {self.policy.name} in mid-run: its servers fold with "
                f"{after.name}({after}), those of {self.policy.name} with {before.name}({before}), and what they remember "
                "means something else. Start a new run."
            )
        self.policy = Options(name=policy.name, **new.model_dump(by_alias=True, exclude_unset=True))
        self.membership.switch(self.policy.model_dump(), clocks)

    def switched(self) -> None:
        """The new policy has begun on every slice."""
        self.membership.end_switch(build_policy(self.policy).rounds)

    # evaluator
    @property
    def members(self) -> list[tuple[str, int, str]]:
        """Worker, incarnation and address of each member, in worker order."""
        seats = sorted(self.membership.view.seats.items(), key=lambda item: worker_order(item[0]))
        return [(worker, seat.incarnation, self._addresses.get(worker, "")) for worker, seat in seats]

    @property
    def peers(self) -> list[str]:
        """Where local models can be read, in worker order: members, and those that have finished."""
        seats, places = self.membership.view.seats, self.membership.places
        there = [
            worker for worker in self._addresses if worker in seats or (worker in places and places[worker].is_idle)
        ]
        return [self._addresses[worker] for worker in sorted(there, key=worker_order) if self._addresses[worker]]

    def ready(self, now: float) -> None:
        """The evaluator has its data."""
        self.evaluator_ready = True
        self._maybe_start(now)

    @property
    def epoch(self) -> int:
        """Whole epochs counted over all workers."""
        return self.examples // self.examples_per_epoch if self.examples_per_epoch else 0

    @property
    def budget(self) -> int:
        """Examples that the run is to train, all workers together; 0 before anybody has said how long an epoch is."""
        return self.config.epochs * self.examples_per_epoch

    @property
    def result(self) -> str | None:
        """The final version's score in words; None where it was not scored, or not yet."""
        if not self.scores or not self.scores[-1].final:
            return None
        return result(self.scores[-1].metrics, self.scores[-1].measure)

    def due_score(self) -> tuple[int, bool] | None:
        """(epoch, final) that the evaluator should score next; None while there is nothing new."""
        if self.phase is RunPhase.SCORING:
            return self.epoch, True
        scored = self.scores[-1].epoch if self.scores else -1
        return (self.epoch, False) if self.phase is RunPhase.TRAINING and self.epoch > scored else None

    def score(self, score: Score, now: float) -> None:
        """The evaluator reports; the final score ends the run."""
        before = self.scores[-1].epoch if self.scores else -1
        self.skipped_scores += max(0, score.epoch - before - 1)
        self.scores.append(score)
        self.watch.scored(score.metrics, score.epoch, score.epoch * self._steps_per_epoch, score.final)
        if score.final and self.phase is RunPhase.SCORING:
            self._enter(RunPhase.FINISHED, now)

    # time
    def tick(self, now: float) -> list[str]:
        """Lets time pass: leases, start and scoring time-outs. Returns workers whose lease lapsed."""
        lapsed = self.membership.tick(now)
        if self._since is None:
            self._since = now
        waited = now - self._since
        if self.phase is RunPhase.WAITING and waited > self.config.start_timeout and self.membership.candidates:
            self._start(now)
        if self.phase is RunPhase.SCORING and waited > self.config.score_timeout:
            self.reason += "; unscored: no evaluator reported in time"
            self._enter(RunPhase.FINISHED, now)
        self._maybe_all_left(now)
        return lapsed

    def seconds(self, now: float) -> float:
        """Training time so far (seconds)."""
        running = self.phase in (RunPhase.TRAINING, RunPhase.STOPPING) and self._started is not None
        return self._trained + (now - self._started if running and self._started is not None else 0.0)

    def missing(self) -> list[str]:
        """Who the run waits for before it starts, in words."""
        here = sorted(self.membership.candidates, key=worker_order)
        joining = sorted(set(self.membership.places) - set(here), key=worker_order)
        need = self.config.start_when or self.config.workers
        words = []
        if len(here) < need:
            words.append(f"{need - len(here)} of {need} workers (ready: {', '.join(here) or 'none'}; joining: "
                         f"{', '.join(joining) or 'none'})")  # fmt: skip
        if not self.evaluator_ready:
            words.append("the evaluator's data")
        return words

    # snapshots
    def state(self) -> dict[str, Any]:
        """What a restarted chief needs beside its slice's snapshot: plain JSON values."""
        return {
            "phase": self.phase,
            "membership": self.membership.state(),
            "facts": self._facts(),
            "scores": [asdict(score) for score in self.scores],
            "skipped": self.skipped_scores,
            "reason": self.reason,
            "losses": self.validation_losses,
            "told": self._losses,
            "validated": self._validated,
            "trained": self._trained,
            "finished": sorted(self._finished),
            "addresses": self._addresses,
            "founders": self.founders,
            "watch": self.watch.state(),
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Goes on where `state` was; it does not wait for a start again."""
        self.membership.restore(state["membership"], now)
        if self.membership.view.switch is not None:
            self.policy = Options(**self.membership.view.switch.policy)
        # members are shown from the start, not only once each has beaten again
        self.reports = {worker: WorkerReport(phase="unheard", seen=now) for worker in self.membership.view.seats}
        self.examples_per_epoch, self._steps_per_epoch, self._fingerprint = state["facts"]
        self.scores = [Score(**score) for score in state["scores"]]
        self.skipped_scores, self.reason, self._trained = state["skipped"], state["reason"], state["trained"]
        self.validation_losses, self._validated = list(state["losses"]), dict(state["validated"])
        self._losses = {worker: (loss, examples) for worker, (loss, examples) in state["told"].items()}
        self._finished, self._addresses = set(state["finished"]), dict(state["addresses"])
        self.founders = dict(state.get("founders", {}))
        self.watch.restore(state.get("watch", {}))
        self._enter(RunPhase(state["phase"]), now)

    def checkpoint_time(self, now: float) -> None:
        """Notes the training time so far, so that a restarted chief counts on from here."""
        self._trained, self._started = self.seconds(now), now

    # inside
    def _may_seat(self, worker: str, clock: int, clocks: Clocks) -> bool:
        """A seat that is held may change hands until the end; a new one needs to know how far the others are. A process that
        has nothing to do any more before the policy changes waits until it has changed."""
        seat = self.membership.view.seats.get(worker)
        if seat is None:
            return self.phase is RunPhase.TRAINING and not clocks.is_recovering and not self.is_switching
        has_work = seat.hold is None or clock < seat.hold
        return self.phase in (RunPhase.TRAINING, RunPhase.STOPPING) and has_work

    def _facts(self) -> tuple[int, int, str]:
        return self.examples_per_epoch, self._steps_per_epoch, self._fingerprint

    def _last_clock(self) -> int | None:
        if self.config.budget != "per_worker":
            return None
        return -(-self.config.epochs * self._steps_per_epoch // build_policy(self.policy).most_steps)

    def _maybe_start(self, now: float) -> None:
        if self.phase is RunPhase.WAITING and not self.missing():
            self._start(now)

    def _start(self, now: float) -> None:
        last = self._last_clock()
        lasts = dict.fromkeys(self.membership.candidates, last) if last is not None else {}
        self.membership.start(lasts, now)
        self.founders = {worker: seat.incarnation for worker, seat in self.membership.view.seats.items()}
        self._enter(RunPhase.TRAINING, now)

    def _maybe_all_left(self, now: float) -> None:
        """Nobody has a seat any more: the run is over, unless somebody who lost a seat may still come back for it."""
        if self.membership.view.seats:
            self._deserted = None
            return
        self._deserted = now if self._deserted is None else self._deserted
        is_complete = self.config.budget == "per_worker" or self._finished >= self._addresses.keys()
        is_late = now - self._deserted >= self.config.lease
        is_trained = self.phase is RunPhase.TRAINING and bool(self._finished) and (is_complete or is_late)
        if self.phase is RunPhase.STOPPING or is_trained:
            self.reason = self.reason or "every worker has finished its epochs"
            self._enter(RunPhase.SCORING, now)

    def _enter(self, phase: RunPhase, now: float) -> None:
        self._trained, self._started = self.seconds(now), now
        self.phase, self._since = phase, now
