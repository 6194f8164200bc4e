"""The single writer of a slice: serialises calls, wakes waiting ones, and hands them their replies."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TypeVar

from paceline.core.chief.budget import Milestones
from paceline.core.codecs.codec import Codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import ConfigError, NotYet, Overloaded, PacelineError, TryAgain
from paceline.core.optimizers.effective import pool_of
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Config
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.folding import NewFolding
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.norm_cap import NormCap
from paceline.core.slice.plan import Shapes, SlicePlan, assembly_buffers, make_plan
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.slice.state import Phase, SliceState, Standing
from paceline.core.values import Base, Outcome, Places, Published, Push, Reply, Sparse, Switch, Vector, View
from paceline.rpc.transport import IsThere
from paceline.server.metrics import ServerMetrics
from paceline.server.push_assembly import AssemblyBuffers
from paceline.server.slice_snapshots import SliceSnapshots
from paceline.server.waiting_calls import LONGEST_WAIT, LOOK, WaitingPulls, WaitingPush, WaitingPushes, wait_until
from paceline.v1 import parameter_service_pb2 as pb

T = TypeVar("T")
PATIENCE = 2.0
"""How long a fold waits for an array that a reader holds, before it is taken back (seconds)."""
_ENDING = 2 * LOOK
"""How long Resume waits for the end of a push whose caller has gone away (seconds)."""


class SliceDriver(SliceSnapshots):
    """One server's slice behind a lock. Thread-safe; calls block for LONGEST_WAIT seconds at most."""

    _open_from: int | None = None
    """The first round that stays open, also of a slice that is made later."""

    def __init__(self, config: Config, index: int, term: int, metrics: ServerMetrics) -> None:
        super().__init__(config)
        self.index = index
        self.term = term
        self._metrics = metrics
        self.milestones = Milestones()
        """Of the chief, which replaces them without the lock."""
        self.wake_chief: Callable[[], None] = lambda: None
        """Called under the lock after a push that has come to a milestone."""
        self.awaits_chief = False
        """Whether no push is counted before `go_on`."""
        self.counted = 0
        """Pushes that this process has counted."""
        self.norm_cap = None if config.push_norm_cap is None else NormCap(config.push_norm_cap)
        self._exact_from = 0
        """Where running statistics begin in the slice, which travel as they are; its length without any."""
        self._buffers: AssemblyBuffers | None = None
        self._crowded_since: float | None = None
        """When a fold first had to wait for a reader; None where none does (time.monotonic seconds)."""
        self._pushes = WaitingPushes(self.changed)
        self._pulls = WaitingPulls(self._lock)
        self.failure: Exception | None = None
        """What left the slice half changed, or ended one of the server's threads: nothing may be written down any more, and the
        process ends with it."""
        self._is_unwritten = False
        """Whether the first weights are being written down."""

    def fails(self, error: Exception) -> None:
        """Notes what the process is to end with; the first one counts."""
        self.failure = self.failure or error

    # the plan
    def adopt(self, shapes: Shapes, plan_hash: str, worker: str) -> None:
        """Checks the worker's plan; the first worker's shapes become the run's if its plan fits them."""
        with self.changed:
            plan = self.plan or make_plan(shapes, self.config.servers, self.config.plan)
            plan.check(plan_hash, worker, shapes)
            if self.plan is None:
                self._open(plan)
                self._summarise()

    def restore(self, plan: SlicePlan, state: SliceState, is_safe: bool = True) -> None:
        """Starts from a snapshot, before any call. `is_safe`: it can't be lost; otherwise workers keep what it has."""
        with self.changed:
            self._open(plan)
            self._restore(state)
            if not is_safe:
                self.model_slice.clocks.durable = {}
            self._summarise()

    def go_back(self, plan: SlicePlan, state: SliceState, term: int) -> None:
        """Goes on from a snapshot, under a new term, as after a new start."""
        with self.changed:
            self.term = term
            buffers = self._buffers  # some are just being filled
            self.slice = None
            self._open(plan)
            self._buffers = buffers or self._buffers
            self._pool.reclaim(lambda worker: False)  # or its worker's next push would pass for a repeat
            self._restore(state)
            self._is_taking = False
            self._pushes.drop_all()
            self._summarise()
            self.changed.notify_all()

    @property
    def model_slice(self) -> ModelSlice:
        """The slice; NotYet before a plan is known."""
        if self.slice is None:
            raise NotYet("No worker has told this server the model's shapes yet.")
        return self.slice

    @property
    def clocks(self) -> Clocks:
        """The slice's clocks: empty ones before there is a slice, the last ones after it. Hold the lock."""
        return self._clocks

    def has_lost(self, version: int) -> bool:
        """Whether the slice has no weights, though another server's has come to this version (folds)."""
        summary = self.summary
        return version > 0 and not (summary.version > 0 or summary.has_weights)

    def look_again(self) -> None:
        """Lets answers and snapshots that wait for the view look whether it is written."""
        with self.changed:
            self.changed.notify_all()

    def go_on(self) -> None:
        """The chief has looked at the slice that waited for it."""
        with self.changed:
            self.awaits_chief = False
            self.changed.notify_all()

    @property
    def lacks_weights(self) -> Switch | None:
        """A change that goes back to older weights and waits for them."""
        with self.changed:
            return None if self.slice is None else self.slice.lacks_weights

    def hold(self, number: int, state: SliceState | None) -> None:
        """Takes the snapshot that the change with this number goes back to; None: there is none that can be used."""
        with self.changed, self._whole():
            if self.slice is not None:
                self._after(self.slice.hold(number, state))
                if state is not None:
                    self._metrics.recoveries.inc()

    @property
    def lr(self) -> float:
        """The schedule's current rate; 0 without a slice."""
        with self.changed:
            return self.slice.lr if self.slice is not None else 0.0

    @property
    def lead(self) -> int:
        """Clocks from the slowest member to the fastest one."""
        with self.changed:
            return max((self._clocks.lead(worker) for worker in self._clocks.members), default=0)

    # membership and start
    def view(self, view: View, open_from: int | None = None) -> None:
        """Takes the new view. `open_from`: as for `keep_rounds_open`."""
        with self.changed, self._whole():
            if self._buffers is not None:
                self._buffers.drop(partial(_is_over, self._view, view))
            self._view, self._open_from = view, open_from
            if self.slice is not None:
                self._after(self.slice.keep_rounds_open(open_from))
                for since in self.slice.waits_ended_by(view):
                    self._metrics.wait.observe(time.monotonic() - since)
                self._after(self.slice.view(view))
            self._metrics.follow(view.seats)
            self._summarise()
            self.changed.notify_all()

    def keep_rounds_open(self, first: int | None) -> None:
        """Keeps rounds from `first` on open; None: none. Waits for no push where that is so already, for which the caller keeps
        others from `view`."""
        if self._open_from == first:
            return
        with self.changed, self._whole():
            self._open_from = first
            if self.slice is not None:
                self._after(self.slice.keep_rounds_open(first))

    def resume(self, worker: str, incarnation: int) -> Standing:
        """The worker's state on the slice. A worker that asks and has pushes that could still be lost may wait for a snapshot
        of them, which is taken soon."""
        deadline = time.monotonic() + LONGEST_WAIT
        with self.changed:
            standing = self._answered(lambda: self.model_slice.resume(worker, incarnation), deadline)
            if self._is_unwritten:
                standing = replace(standing, phase=Phase.EMPTY)
        if self.keeps and standing.durable < standing.clock:
            self.hurry()
        return standing

    def initialise(self, weights: Vector, digest: bytes) -> bool:
        """Takes the first weights; returns whether they were new: then the slice is called empty until `first_are_written`,
        and who brings them again waits for that. NotYet: it takes longer than LONGEST_WAIT."""
        until = time.monotonic() + LONGEST_WAIT
        with self.changed:
            is_new = self.model_slice.phase is Phase.EMPTY
            self.model_slice.initialise(weights, digest)
            self._is_unwritten |= is_new
            self._summarise()
            self.changed.notify_all()
            if is_new or wait_until(self.changed, lambda: not self._is_unwritten or None, until, lambda: True):
                return is_new
            raise NotYet("The first weights are still being written down.")

    def first_are_written(self) -> None:
        """The first weights are on disk, or can't be written: workers may train on them."""
        with self.changed:
            self._is_unwritten = False
            self.changed.notify_all()

    # pushes
    def take_buffer(self, head: pb.PushHead, is_there: IsThere) -> tuple[Vector, float]:
        """Waits for an array in which to assemble the push; Overloaded if none becomes free, TryAgain where the push goes on
        with what is not kept. Returns it with the time in which a round's sum waited for other workers' pushes, which come
        before it (seconds)."""
        start, worker = time.monotonic(), head.worker
        self._metrics.queue.inc()
        try:
            with self.changed:
                is_in_turn = self.model_slice.next_in_order() in (None, worker)
                values = wait_until(
                    self.changed,
                    lambda: self._pool.take(head, self.model_slice.next_in_order()),
                    start + LONGEST_WAIT,
                    is_there,
                )
        finally:
            self._metrics.queue.dec()
            self._metrics.queue_seconds.observe(time.monotonic() - start)
        if values is None:
            raise Overloaded(f"No buffer for {worker}'s push became free within {LONGEST_WAIT:g} s. Send it again.")
        return values, 0.0 if is_in_turn else time.monotonic() - start

    def coding(self, codec: Codec) -> SliceCodec:
        """How this slice's values travel with that codec."""
        return SliceCodec(codec, self._exact_from)

    def arrived(self, worker: str, upload: int) -> int:
        """Elements that have come of an upload that broke off. Its last attempt may just be ending: waits a moment for that."""
        with self.changed:
            if self._buffers is None or not upload:
                return 0
            buffers = self._buffers
            self.changed.wait_for(lambda: buffers.arrived(worker, upload) is not None, _ENDING)
            return buffers.arrived(worker, upload) or 0

    def give_back(self, worker: str, values: Vector, filled: int) -> None:
        """Gives up the push that was assembled there, with the `filled` elements that have come."""
        with self.changed:
            if self._buffers is not None:
                self._buffers.give_back(worker, values, filled)
            self.changed.notify_all()

    def push(self, push: Push, values: Vector | None, is_there: IsThere) -> Reply | None:
        """Counts the push and waits for its reply; None when that takes longer than LONGEST_WAIT. `values`: the buffer of the
        update, which the driver owns from here on. The update's own values may be scaled down."""
        deadline = time.monotonic() + LONGEST_WAIT
        call = WaitingPush()
        was_capped = self._cap(push)  # before the lock: it reads all values

        def pushed() -> Reply | None:
            try:
                self._when_ready(lambda: self._count(push, values, call, was_capped), deadline, is_there)
            finally:
                if values is not None and not call.is_counted:
                    self.give_back(push.worker, values, 0 if was_capped else len(values))
            return self._answer(push.worker, call, deadline, is_there) if call.is_counted else None

        return self._answered(pushed, deadline)

    def _cap(self, push: Push) -> bool:
        """Scales a push above `push_norm_cap` down, and returns whether it was."""
        if self.norm_cap is None or (model_slice := self.slice) is None:
            return False
        return self.norm_cap.hold(push, model_slice.weights)

    def ask(self, worker: str, incarnation: int, clock: int, is_there: IsThere) -> Reply | None:
        """The reply to a push that was counted before; None when it takes longer than LONGEST_WAIT."""
        deadline = time.monotonic() + LONGEST_WAIT
        call = WaitingPush()

        def ask_slice() -> bool:
            with self._whole(lambda error: not isinstance(error, PacelineError)):
                replies = self.model_slice.ask(worker, incarnation, clock, time.monotonic())
            self._pushes.expect(worker, call)
            self._after(replies)
            return True

        def answer() -> Reply | None:
            was_asked = self._when_ready(ask_slice, deadline, is_there)
            return self._answer(worker, call, deadline, is_there) if was_asked else None

        return self._answered(answer, deadline)

    def exchange(
        self,
        worker: str,
        clock: int,
        count: Callable[[], Reply | None],
        base: Base,
        wanted: Places | None,
        pushed: Places,
        most: int,
    ) -> tuple[Reply, Sparse | None] | None:
        """What `count` (`push` or `ask`) gives, with the weights of that very moment that are wanted, or that differ from
        those of the worker: what has changed since `base`, and the places of its push too, unless this very push has just
        been added; None where these are more than `most`."""
        with self.changed:
            is_repeat = self._clocks.entry(worker).clock >= clock
            reply = count()
            if reply is None:
                return None
            also = pushed if is_repeat or reply.outcome is Outcome.DROPPED else pushed[:0]
            return reply, self.model_slice.answer(base, wanted, also, most)

    def release(self, published: Published) -> None:
        """Releases a reply's or pull's weights after they are sent."""
        with self.changed:
            if self.slice is not None:
                self.slice.release(published)
                if not self.slice.crowded:
                    self._crowded_since = None
            self.changed.notify_all()

    def pull(self, version: int | None, is_there: IsThere, mean: bool = False) -> Published | None:
        """Weights of `version` (None: the newest), pinned as soon as they exist; None after LONGEST_WAIT. `mean`: the
        mean of the versions up to this one instead, if the run has one."""
        deadline = time.monotonic() + LONGEST_WAIT
        with self.changed:
            return self._pulls.answer(version, mean, self.slice, deadline, is_there)

    # snapshots
    def drop_weights(self) -> None:
        """Frees the slice's memory; calls then answer as before there was a plan."""
        with self.changed:
            self.slice = self._buffers = None

    # inside; all with the lock held
    def _restore(self, state: SliceState) -> None:
        super()._restore(state)
        self._metrics.recoveries.inc()

    @property
    def _pool(self) -> AssemblyBuffers:
        if self._buffers is None:
            raise NotYet("No worker has told this server the model's shapes yet.")
        return self._buffers

    def _open(self, plan: SlicePlan) -> None:
        config, length = self.config, plan.lengths[self.index]
        policy, optimizer = build_policy(config.policy), build_optimizer(config.optimizer)
        folding: NewFolding = DenseFolding
        if config.updates == "sparse":
            folding = partial(SparseFolding, average_from=config.mean_from)
        try:
            pool, layout = pool_of(config), plan.layout(self.index)
            self.slice = ModelSlice(
                length, policy, optimizer, self.term, config.schedule, config.epochs, pool, folding, layout, config.clip
            )
        except (MemoryError, ValueError) as error:
            raise ConfigError(
                f"Server {self.index} has no memory for a slice of {length:,} values. Use more servers: paceline plan."
            ) from error
        self.plan = plan
        self._exact_from = plan.elements_before(optimizer.averaged, self.index)
        self._clocks = self.slice.clocks
        self._buffers = AssemblyBuffers(length, assembly_buffers(length, config.workers, config.push_memory))
        self.slice.keep_rounds_open(self._open_from)
        self.slice.view(self._view)
        self._metrics.slice_bytes.set(4 * length)
        self._metrics.optimizer_bytes.set(4 * length * self.slice.optimizer.slots)

    def _count(self, push: Push, values: Vector | None, call: WaitingPush, was_capped: bool) -> bool | None:
        """Hands the push to the slice, once its fold needs no more memory than the formula counts, and unless the chief has to
        look at the slice first."""
        if self.awaits_chief or not self._has_room():
            return None
        start, before = time.monotonic(), self._clocks.entry(push.worker).clock
        is_new = push.clock > before
        with self._whole(lambda error: self._clocks.entry(push.worker).clock > before):
            replies = self.model_slice.push(push)
        call.is_counted = True
        self.counted += 1
        self._pushes.expect(push.worker, call)
        if values is not None:
            self._pool.hand(push.worker, values)
        self._metrics.fold.observe(time.monotonic() - start)
        switch = self.model_slice.switch
        self._metrics.trains(self.config.policy.name if switch is None else switch.policy["name"])
        self._metrics.saw(push.worker)
        if self.norm_cap is not None and is_new:
            self.norm_cap.count(push.worker, was_capped)
            self._metrics.capped.labels(push.worker).inc(was_capped)
        self._after(replies, push.worker)
        self._look_at_milestones()
        return True

    def _look_at_milestones(self) -> None:
        milestones, clocks = self.milestones, self._clocks
        self.awaits_chief = milestones.may_end(clocks)
        if self.awaits_chief or clocks.trained >= milestones.score:
            self.wake_chief()

    def _has_room(self) -> bool:
        """Whether the next fold has an array. A reader that holds it for longer than PATIENCE loses it."""
        now = time.monotonic()
        if self.model_slice.crowded:
            if self._crowded_since is None:
                self._crowded_since = now
            if now - self._crowded_since < PATIENCE:
                return False
            self.model_slice.take_back()
        self._crowded_since = None
        return True

    @contextmanager
    def _whole(self, is_begun: Callable[[Exception], bool] = lambda error: True) -> Iterator[None]:
        """Around a change of the slice. `is_begun`: whether an error has left a part of it."""
        try:
            yield
        except Exception as error:
            if is_begun(error):
                self.fails(error)
            raise

    def _after(self, replies: list[Reply], pusher: str | None = None) -> None:
        """Delivers replies, recycles buffers, serves readers of a version to come. `pusher`: as for `_summarise`."""
        for reply in replies:
            if not self._pushes.deliver(reply):
                self.model_slice.release(reply.weights)
        self._pool.reclaim(self.model_slice.needs)
        self._look_at_due()
        self._pulls.serve(self.slice)
        if self.keeps and self.model_slice.switch_number != self.model_slice.kept_switch:
            self.hurry()
        self._metrics.version.set(self.model_slice.version)
        self._summarise(pusher)
        self.changed.notify_all()

    def _answered(self, work: Callable[[], T], deadline: float) -> T:
        """What `work` returns or raises with the lock held, once the view that it rests on can't be lost any more. Raises
        TryAgain at the deadline."""
        with self.changed:
            try:
                answer = work()
            except PacelineError:
                self._await_view(deadline)
                raise
            try:
                self._await_view(deadline)
            except TryAgain:
                if isinstance(answer, Reply):
                    self.release(answer.weights)
                raise
            return answer

    def _await_view(self, deadline: float) -> None:
        if not self.changed.wait_for(self.is_view_written, max(0.0, deadline - time.monotonic())):
            raise TryAgain(
                "The chief's disk has not taken the newest view yet. Ask again; look at the disk of server 0."
            )

    def _answer(self, worker: str, call: WaitingPush, deadline: float, is_there: IsThere) -> Reply | None:
        """The call's reply, once it exists; None if it takes too long or the worker is no longer a member."""
        return self._pushes.answer(worker, call, lambda: self._clocks.seat(worker) is not None, deadline, is_there)

    def _when_ready(self, attempt: Callable[[], bool | None], deadline: float, is_there: IsThere) -> bool | None:
        """Repeats an attempt that raises NotYet or returns None after every change, until the deadline."""

        def tried() -> bool | None:
            try:
                return attempt()
            except NotYet:
                return None

        return wait_until(self.changed, tried, deadline, is_there)


def _is_over(before: View, now: View, head: pb.PushHead) -> bool:
    """Whether nobody goes on with this push: its worker has left, or another process of it has its seat."""
    seat = now.seats.get(head.worker)
    return head.worker in before.seats if seat is None else head.incarnation < seat.incarnation
