"""Server 0 as the chief: drives the run's state machine, publishes its views, keeps its state on disk."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from paceline.core.chief.leases import Lease, Wish
from paceline.core.chief.membership import Membership
from paceline.core.chief.phases import RunPhase
from paceline.core.chief.run import Run
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import Kind
from paceline.core.chief.workers import WorkerReport
from paceline.core.errors import DataError
from paceline.core.policies.clocks import Clocks, Reading
from paceline.core.settings.config import Options
from paceline.core.slice.lost_slices import lost
from paceline.server.chief_lock import ChiefLock
from paceline.server.common_versions import CommonVersions
from paceline.server.disk import DiskTrouble
from paceline.server.json_files import understood
from paceline.server.own_figures import OwnFigures, ServerStart, most_capped
from paceline.server.run_writer import RunWriter
from paceline.server.slice_driver import SliceDriver
from paceline.server.slice_summary import SliceSummary
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder
from paceline.server.waiting_calls import LONGEST_WAIT
from paceline.v1 import run_service_pb2 as pb

_TICK = 0.25
"""Time between two looks at leases and time-outs (seconds)."""


class Chief:
    """Changes the run under its own lock, which no push waits for, and reads the slice's summary there, so that it waits for
    no push. Only to name clocks, and to bring a new view to its slice, it takes the slice's lock, too, after its own
    (docs/understand/members.md#the-two-locks-of-the-chief). It holds neither while it waits for the disk. Thread-safe."""

    def __init__(
        self,
        run: Run,
        driver: SliceDriver,
        folder: StateFolder,
        snapshots: Snapshots,
        say: Callable[..., None],
        start: ServerStart,
        figures: OwnFigures,
    ) -> None:
        """`start`, `figures`: this server's own."""
        self.run = run
        self._driver = driver
        self._snapshots = snapshots
        self._versions = CommonVersions(driver, folder, snapshots, say)
        self._say = say
        self.changed = ChiefLock(driver.changed)
        self.starts = {driver.index: start}
        """The newest one of every server that has told it. Hold the lock."""
        self.own_figures = figures
        self.figures: dict[int, pb.ServerFigures] = {}
        """The newest of each other server. Hold the lock."""
        self._published = -1
        self._saved: tuple[object, ...] = ()
        self._trouble = DiskTrouble(
            "can't keep the run's state; training goes on", "the run's state is kept again", say
        )
        figures.look_at(self._trouble)
        self._is_to_look = threading.Event()
        """The slice has come to a milestone, or the run's state is written."""
        self._writer = RunWriter(self.changed, self._state, folder, self._trouble, driver.fails, self._is_to_look.set)
        self._view_change = 0
        """The writer's number of the change that brought the view in force."""
        driver.is_view_written = lambda: self._writer.is_written(self._view_change)
        driver.wake_chief = self._is_to_look.set
        self._said_phase = run.phase
        self._missing: list[str] = []
        """Members that those wait for who are back, as last logged."""
        self._warned: set[str] = set()
        """Kinds of warnings already logged."""
        self.refusal: DataError | None = None
        """Why the run can't go on: this server's snapshots are lost."""
        self._stopping = threading.Event()
        saved = folder.load_run()
        with self.at_work() as clocks:
            if saved is not None:
                with understood(folder.run_file):
                    run.restore(saved, time.monotonic())
                run.counted(clocks(), time.monotonic())
                self._warned = {warning.kind for warning in run.warnings.listed}
            run.tick(time.monotonic())  # late ticks are noticed from here on
            self.settle()
        self._writer.write()
        self._threads = [
            threading.Thread(target=self._guarded, args=[self._tick_on], name="chief", daemon=True),
            threading.Thread(target=self._guarded, args=[self._look_on], name="chief-looks", daemon=True),
        ]

    def start(self) -> None:
        """Starts to watch leases and time-outs."""
        self._writer.start()
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Stops watching and saves the state."""
        self._stopping.set()
        self._is_to_look.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
        self._writer.close()
        self._driver.look_again()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """As `at_work`, for a call. Leaving it waits, without the lock, until all that the call has changed or seen is on the
        disk; raises TryAgain where that takes too long."""
        try:
            with self.at_work():
                yield
        finally:
            self._writer.wait()

    @contextmanager
    def at_work(self) -> Iterator[Reading]:
        """The lock, with what the slice has counted until now. Yields what returns the slice's clocks, for who names clocks:
        it takes the slice's lock until the end, before which `settle` has to bring the view to the slice."""
        with self.changed, ExitStack() as stack:
            self._take_summary()

            def clocks() -> Clocks:
                stack.enter_context(self._driver.changed)
                return self._driver.clocks

            yield clocks

    def _take_summary(self) -> None:
        """Lets the run know what the slice has counted, and the slice at what the chief has to look. Hold the lock."""
        summary = self._driver.summary
        self.run.trained(summary.trained, summary.gone, summary.in_round)
        self._driver.milestones = self.run.milestones

    @property
    def membership(self) -> Membership:
        return self.run.membership

    @property
    def summary(self) -> SliceSummary:
        """Of the chief's slice."""
        return self._driver.summary

    def budget_spent(self) -> float:
        """The trained share of the run's examples (ratio)."""
        with self.at_work():
            return self.run.budget.share

    def warned(self, kind: Kind) -> bool:
        """Whether this warning applies at present."""
        with self.changed:
            return self.run.warnings.standing(kind)

    def settle(self) -> None:
        """After any change of the run: lets it go on if it has more epochs than it had, has it written (joins, views and phases
        are rare), publishes a new view, logs a new phase. The slice takes the view at once, since it may not pass the clocks
        that are named in it; its answers wait until the view is written. Hold the lock."""
        with self.at_work() as clocks:
            if self.run.extend(clocks, time.monotonic()):
                self._say("the run was over, and goes on: it has more epochs now", epochs=self.run.config.epochs)
            self._publish()
        if (missing := self.membership.missing) != self._missing:
            self._missing = missing
            if missing:
                self._say("the run has come back, and waits for its other workers", workers=missing)
        if self.run.phase is not self._said_phase:
            self._said_phase = self.run.phase
            self._say("phase", phase=str(self.run.phase), why=self.run.reason)
        self.changed.notify_all()

    def _publish(self) -> None:
        """Has a change written, and brings a new view to the slice."""
        view = self.membership.view
        mark = (view.number, self.run.phase, sum(self.membership.incarnations.values()), self.run.leasing.number)
        if mark != self._saved:
            self._saved = mark
            self._writer.note()
        if view.number != self._published:
            self._published = view.number
            self._view_change = self._writer.noted
            self._bring_view()
        self._free_batches()
        self._take_summary()

    def _free_batches(self) -> None:
        """Frees what workers that have left have not done, as far as all servers know that. Hold the lock."""
        if self.summary.view.number == self.membership.view.number:
            for worker, count in self.run.leasing.free(self.summary.unseated).items():
                self._say("others compute the rest of a worker's mini-batches", worker=worker, count=count)

    def _bring_view(self) -> None:
        """The slice takes the view in force, once it has counted the push at hand."""
        with self._driver.changed:
            self.run.publish(self._driver.clocks.version)
            self._driver.view(self.membership.view, self.run.open_from)

    def acknowledged(
        self, server: int, term: int, view: int, switch: int, gone: int, unseated: Mapping[str, int]
    ) -> None:
        """Notes that another server follows this view. Hold the lock."""
        if self.run.other_servers.terms.get(server, term) != term:
            self.run.common_snapshots.soon(time.monotonic())
        self.run.other_servers.acknowledged(server, term, view, switch, gone, unseated)
        self._free_batches()
        self._take_summary()
        self._keep_rounds_open()
        self._maybe_switched()
        self.changed.notify_all()

    def reported(self, server: int, kept: Sequence[int], due: int, back: int) -> None:
        """Notes which versions another server has on disk, which named one it knows, and which order to go back it has
        followed. Hold the lock."""
        self.run.common_snapshots.reported(server, kept, due, back)
        self._keep_rounds_open()
        self.changed.notify_all()

    def compare(self, version: int) -> None:
        """Notes that this server's snapshots are lost, if another server's slice has come to a version that this one can't
        know (folds)."""
        if self.run.phase is not RunPhase.FINISHED and self._driver.has_lost(version):
            self.refusal = lost([self._driver.index])

    def go_back(self, terms: Sequence[int]) -> bool:
        """A worker needs weights that a slice no longer has; all servers go back to their newest common snapshot. `terms`:
        those of the servers when it looked; if one has begun another since, it has to look again. Returns whether it is
        worth it. Hold the lock."""
        known, common = self.terms, self.run.common_snapshots
        if any(known.get(server, 0) > term for server, term in enumerate(terms)):
            return True
        number = common.back.number
        if not common.go_back():
            return False
        if common.back.number != number:
            self._say("all servers go back to their newest common snapshot", version=common.back.version)
            self._writer.note()
        self.changed.notify_all()
        return True

    def _keep_rounds_open(self) -> None:
        """Keeps those rounds open that wait for another server to have a view or a name, and no others. Hold the lock."""
        self._driver.keep_rounds_open(self.run.open_from)

    def _look_after_snapshots(self) -> None:
        """Names the next common snapshot, and goes back to one where that is the order; the disk is read without the lock."""
        common = self.run.common_snapshots
        with self.at_work():
            self._report_own()
            order = common.order(0) if self._writer.is_written() else None
        if self._versions.follow(order):
            with self.at_work() as clocks:
                self.run.workers.fell_back()
                self.run.counted(clocks(), time.monotonic())
                if not self.run.is_followed:
                    self._bring_view()
                self._keep_rounds_open()
                self._report_own()
                self._writer.note()
        self._versions.bring_good_weights()
        with self.at_work() as clocks:
            self.run.divergence.reported(0, self._versions.stored, self._versions.spared)
            self.run.look_after_good(time.monotonic())
            self.run.give_up(clocks, time.monotonic())
            self.run.stop_early(clocks, time.monotonic())
            self._look_at_capped()
            self._warn()
            self.settle()
            self._versions.spare(self.run.divergence.spared(0))
            if self.run.name_snapshot(clocks, self._snapshots.pause, time.monotonic()):
                self._keep_rounds_open()
                self._driver.name(common.due)
            news = common.due, common.newest or 0
            self.changed.notify_all()
        self._versions.heard(*news)  # without the lock, as it waits for the slice

    def all_figures(self) -> dict[int, pb.ServerFigures]:
        """The newest of each server. Hold the lock."""
        return self.figures | {0: self.own_figures.message()}

    def _look_at_capped(self) -> None:
        if self.run.config.push_norm_cap is not None:
            shares = {worker: found.share for worker, found in most_capped(self.all_figures().values()).items()}
            self.run.capped(shares)

    def _report_own(self) -> None:
        own = self._versions
        self.run.common_snapshots.reported(0, own.durable, own.due, own.back)

    @property
    def terms(self) -> dict[int, int]:
        """Of every server that has been heard of. Hold the lock."""
        return {0: self._driver.term} | self.run.other_servers.terms

    def _maybe_switched(self) -> None:
        """Logs once that the new policy has begun on every slice."""
        if self.run.maybe_switched(self.summary.switch):
            switch = self.membership.view.switch
            assert switch is not None
            if switch.back:
                self._say("the run trains on older weights", rate=switch.rate, version=switch.version)
            else:
                self._say("the new policy trains", policy=self.run.policy.model_dump(), version=switch.version)
            self.settle()

    def wait(self, is_over: Callable[[], bool], longest: float = LONGEST_WAIT) -> bool:
        """Waits under the lock, for `longest` seconds at most, until a condition holds; returns whether it does."""
        return self.changed.wait_for(is_over, longest)

    def beat(self, worker: str, incarnation: int, report: WorkerReport) -> None:
        """Takes a heartbeat. Hold the lock."""
        self.run.beat(worker, incarnation, report, report.seen, self.summary.clocks.get(worker, 0))
        if worker not in self.membership.places:
            self._say(
                "a worker beats but makes no step and has to leave",
                worker=worker,
                phase=report.phase,
                seconds=report.phase_seconds,
            )
        with self.at_work() as clocks:
            self.run.give_up(clocks, report.seen)
            self.run.stop_early(clocks, report.seen)
            self._warn()
            self.settle()

    def seat(self, worker: str, incarnation: int, clock: int) -> bool:
        """Takes a call for a seat; returns whether the worker counts now. Hold the lock."""
        with self.at_work() as clocks:
            done = self.run.seat(worker, incarnation, clock, clocks, time.monotonic())
            self.settle()
            return done

    def lease(self, wish: Wish, incarnation: int) -> Lease:
        """Gives a worker the mini-batches of its next clocks. Hold the lock."""
        with self.at_work() as clocks:
            lease = self.run.lease(wish, incarnation, clocks)
            self.settle()
            return lease

    def stop(self, reason: str) -> None:
        """Takes a request to end the run. Hold the lock."""
        with self.at_work() as clocks:
            self.run.stop(reason, clocks, time.monotonic())
            self.settle()

    def training_seconds(self) -> float:
        """The run's so far. Takes the lock."""
        with self.changed:
            return self.run.phases.seconds(time.monotonic())

    def switch(self, policy: Options) -> None:
        """Takes a request for another policy from a caller with the run's token. Hold the lock."""
        before = self.run.policy
        with self.at_work() as clocks:
            self.run.switch(policy, clocks)
            self._note_change(before)

    def _note_change(self, before: Options, **why: str) -> None:
        """A change of policy has begun."""
        clocks = {worker: seat.switch_clock for worker, seat in self.membership.view.seats.items()}
        policy = self.run.policy.model_dump()
        self._say("the policy changes", before=before.model_dump(), policy=policy, after_clocks=clocks, **why)
        self.settle()

    def _choose_policy(self) -> None:
        """A policy with alternatives may change. Hold the lock."""
        run = self.run
        before, known = run.policy, len(run.policy_choice.said)
        with self.at_work() as clocks:
            if has_begun := run.choose_policy(clocks, time.monotonic()) is not None:
                self._note_change(before, why=run.policy_choice.said[-1])
        if not has_begun and len(run.policy_choice.said) > known:
            self._say("another policy would be better", why=run.policy_choice.said[-1])

    def score(self, score: Score) -> None:
        """Takes the evaluator's report; a repeat changes nothing. Hold the lock."""
        if self.run.scoring.is_repeat(score):
            return
        with self.at_work() as clocks:
            self.run.score(score, time.monotonic())
            self.run.stop_early(clocks, time.monotonic())
            self._writer.note()
            self._say("score", epoch=score.epoch, final=score.final, metrics=score.metrics)
            self._warn()
            self.settle()

    def validated(self, worker: str, incarnation: int, epoch: int, loss: float, examples: int) -> None:
        """Takes a worker's loss. Hold the lock."""
        self.membership.check(worker, incarnation)
        with self.at_work() as clocks:
            self.run.validated(worker, epoch, loss, examples, clocks, time.monotonic())
            self._writer.note()
            self.settle()

    def _warn(self) -> None:
        """Logs new warnings since the last look, and has them written."""
        news = [warning for warning in self.run.warnings.listed if warning.kind not in self._warned]
        self._warned.update(warning.kind for warning in news)
        for warning in news:
            self._say("warning", kind=warning.kind, said=str(warning), epoch=warning.epoch)
        if news:
            self._writer.note()

    def _guarded(self, work: Callable[[], None]) -> None:
        """A thread's whole work."""
        try:
            work()
        except Exception as error:
            self._driver.fails(error)

    def _look_on(self) -> None:
        while self._is_to_look.wait() and not self._stopping.is_set():
            self._is_to_look.clear()
            self._look()

    def _look(self) -> None:
        """Lets go on what waits for a view that is written now, or for the chief. Its own thread waits for no disk and no
        caller."""
        self._driver.look_again()
        with self.at_work() as clocks:
            if not self._driver.awaits_chief:
                self.settle()
                return
            self.run.counted(clocks(), time.monotonic())
            self.settle()
            self._driver.go_on()

    def _tick_on(self) -> None:
        while not self._stopping.wait(_TICK):
            self._tick()

    def _tick(self) -> None:
        with self.at_work():
            for worker in self.run.tick(time.monotonic()):
                self._say("lease lapsed", worker=worker, lease=self.membership.lease)
            self._maybe_switched()
            self._choose_policy()
            if self._writer.has_failed:
                self._writer.note()
            self.settle()
        self._look_after_snapshots()

    def _state(self) -> dict[str, Any]:
        """What the writer writes. Hold the lock."""
        self.run.phases.checkpoint(time.monotonic())
        return self.run.state()
