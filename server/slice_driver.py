"""The single writer of a slice: serialises calls, wakes whoever waits, and hands replies to the calls they belong to."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from paceline.core.clocks import Clocks
from paceline.core.config import Config
from paceline.core.errors import NotYet, Overloaded, TryAgain
from paceline.core.model_slice import ModelSlice, Phase, SliceState, Standing
from paceline.core.optimizer import build_optimizer
from paceline.core.plan import Shapes, SlicePlan, assembly_buffers, make_plan
from paceline.core.policy import build_policy
from paceline.core.values import Published, Push, Reply, Vector, View
from server.buffers import AssemblyBuffers
from server.metrics import ServerMetrics

HOLD = 20.0
"""Longest time that a reply is held back before the caller has to ask again (seconds)."""


T = TypeVar("T")


@dataclass(eq=False, slots=True)
class _Call:
    """A call that waits for a worker's reply."""

    reply: Reply | None = None


@dataclass(eq=False, slots=True)
class _Reader:
    """A call that waits for a version to come."""

    version: int
    published: Published | None = None


class SliceDriver:
    """One server's slice behind a lock. Thread-safe; calls block for HOLD seconds at most."""

    def __init__(self, config: Config, index: int, term: int, metrics: ServerMetrics) -> None:
        self.config, self.index, self.term, self._metrics = config, index, term, metrics
        self.changed = threading.Condition()
        self.plan: SlicePlan | None = None
        self.slice: ModelSlice | None = None
        self.after_push: Callable[[ModelSlice], None] = lambda model_slice: None
        """Called under the lock when a push was counted."""
        self._buffers: AssemblyBuffers | None = None
        self._calls: dict[str, _Call] = {}
        self._readers: list[_Reader] = []
        self._view = View()
        self._clocks = Clocks()

    # the plan
    def adopt(self, shapes: Shapes) -> SlicePlan:
        """The plan for a model of these shapes; the first ones fix it."""
        with self.changed:
            if self.plan is None:
                self._open(make_plan(shapes, self.config.servers, self.config.plan))
            assert self.plan is not None
            return self.plan

    def restore(self, plan: SlicePlan, state: SliceState) -> None:
        """Starts from a snapshot, before any call."""
        with self.changed:
            self._open(plan)
            self.model_slice.restore(state)
            self._metrics.recoveries.inc()

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

    # membership and start
    def view(self, view: View, held_from: int | None = None) -> None:
        """Who counts from now on."""
        with self.changed:
            self._view = view
            if self.slice is not None:
                self.slice.held_from = held_from
                self._after(self.slice.view(view))
            self._metrics.members.set(len(view.seats))
            self.changed.notify_all()

    def release_rounds(self) -> None:
        """Every server has the view: rounds close again."""
        with self.changed:
            if self.slice is not None and self.slice.held_from is not None:
                self._after(self.slice.hold_rounds(None))

    def resume(self, worker: str, incarnation: int, clock: int) -> Standing:
        """Where the worker stands on the slice."""
        with self.changed:
            standing, replies = self.model_slice.resume(worker, incarnation, clock)
            self._after(replies)
            return standing

    def initialise(self, weights: Vector, digest: bytes) -> bool:
        """Takes the first weights; returns whether they were new."""
        with self.changed:
            before = self.model_slice.phase
            self.model_slice.initialise(weights, digest)
            self.changed.notify_all()
            return before is Phase.EMPTY

    # pushes
    def take_buffer(self, worker: str) -> Vector:
        """An array to put the worker's push together in; waits for one, Overloaded when none gets free."""
        start = time.monotonic()
        self._metrics.queue.inc()
        try:
            with self.changed:
                values = self._wait_until(lambda: self._pool.take(worker, self.model_slice.next_in_order()), start + HOLD)
        finally:
            self._metrics.queue.dec()
            self._metrics.queue_seconds.observe(time.monotonic() - start)
        if values is None:
            raise Overloaded(f"No buffer for {worker}'s push got free in {HOLD:g} s; repeat it.")
        return values

    def give_back(self, values: Vector) -> None:
        """The push that was put together there is given up."""
        with self.changed:
            self._pool.give_back(values)
            self.changed.notify_all()

    def push(self, push: Push, values: Vector | None) -> Reply | None:
        """Counts the push and waits for its reply; None when that takes longer than HOLD. `values`: the buffer that the
        update lies in, which is the driver's from here on."""
        deadline = time.monotonic() + HOLD
        call = _Call()
        with self.changed:
            try:
                counted = self._when_ready(lambda: self._count(push, values, call), deadline)
            except BaseException:
                self._calls.pop(push.worker, None)
                if values is not None:
                    self._pool.give_back(values)
                self.changed.notify_all()
                raise
            if counted is None and values is not None:
                self._pool.give_back(values)
            return self._answer(push.worker, call, deadline) if counted else None

    def ask(self, worker: str, incarnation: int, clock: int) -> Reply | None:
        """The reply to a push that was counted before; None when it takes longer than HOLD."""
        deadline = time.monotonic() + HOLD
        call = _Call()
        with self.changed:

            def asked() -> bool:
                replies = self.model_slice.ask(worker, incarnation, clock, time.monotonic())
                self._calls[worker] = call
                self._after(replies)
                return True

            return self._answer(worker, call, deadline) if self._when_ready(asked, deadline) else None

    def release(self, published: Published) -> None:
        """A reply's or pull's weights are sent."""
        with self.changed:
            if self.slice is not None:
                self.slice.release(published)
            self.changed.notify_all()

    def pull(self, version: int | None) -> Published | None:
        """Weights (of `version`, else the newest), pinned; None when they don't come within HOLD."""
        deadline = time.monotonic() + HOLD
        with self.changed:
            found = self._when_ready(lambda: self.model_slice.pull(version), deadline)
            if found is not None or version is None:
                return found
            waiting = _Reader(version)
            self._readers.append(waiting)
            self._wait_until(lambda: waiting.published, deadline)
            self._readers.remove(waiting)
            return waiting.published

    # snapshots
    def state(self) -> tuple[SlicePlan, SliceState] | None:
        """A consistent copy of the slice; None while there is nothing to keep."""
        with self.changed:
            if self.slice is None or self.plan is None or self.slice.phase is not Phase.SERVING:
                return None
            return self.plan, self.slice.state()

    def note_durable(self, state: SliceState) -> None:
        """The snapshot is safe on disk."""
        with self.changed:
            self.model_slice.note_durable(state)

    def drop_weights(self) -> None:
        """Gives the slice's memory back; calls answer as before there was a plan."""
        with self.changed:
            self.slice = self._buffers = None

    # inside; all with the lock held
    @property
    def _pool(self) -> AssemblyBuffers:
        if self._buffers is None:
            raise NotYet("No worker has told this server the model's shapes yet.")
        return self._buffers

    def _open(self, plan: SlicePlan) -> None:
        policy, optimizer = build_policy(self.config.policy), build_optimizer(self.config.optimizer)
        length = plan.lengths[self.index]
        self.plan = plan
        self.slice = ModelSlice(length, policy, optimizer, self.term)
        self._buffers = AssemblyBuffers(length, assembly_buffers(self.config.workers))
        self._clocks = self.slice.clocks
        self.slice.view(self._view)
        self._metrics.slice_bytes.set(4 * length)
        self._metrics.optimizer_bytes.set(4 * length * optimizer.slots)

    def _count(self, push: Push, values: Vector | None, call: _Call) -> bool | None:
        """Hands the push to the slice, once no reader is so slow that its fold would need more memory."""
        if self.model_slice.crowded:
            return None
        self._calls[push.worker] = call
        start = time.monotonic()
        replies = self.model_slice.push(push)
        self._metrics.fold.observe(time.monotonic() - start)
        self._metrics.saw(push.worker)
        if values is not None:
            self._pool.hand(push.worker, values)
        self.after_push(self.model_slice)
        self._after(replies)
        return True

    def _after(self, replies: list[Reply]) -> None:
        """Delivers replies, recycles buffers, serves readers of a version to come."""
        for reply in replies:
            call = self._calls.pop(reply.worker, None)
            if call is None:
                self.model_slice.release(reply.weights)
            else:
                call.reply = reply
        self._pool.reclaim(self.model_slice.holds)
        for reader in self._readers:
            if reader.published is None and reader.version == self.model_slice.version:
                reader.published = self.model_slice.pull(reader.version)
        self._metrics.version.set(self.model_slice.version)
        self.changed.notify_all()

    def _answer(self, worker: str, call: _Call, deadline: float) -> Reply | None:
        """Waits for the call's reply, unless a repeat takes its place or the worker is expelled."""
        clocks = self.model_slice.clocks

        def is_over() -> bool | None:
            replaced = self._calls.get(worker) is not call
            return True if call.reply or replaced or clocks.seat(worker) is None else None

        self._wait_until(is_over, deadline)
        if call.reply is None:
            if self._calls.get(worker) is not call:
                raise TryAgain(f"A repeat of {worker}'s push took this call's place.")
            del self._calls[worker]
        return call.reply

    def _when_ready(self, attempt: Callable[[], T | None], deadline: float) -> T | None:
        """Repeats an attempt that raises NotYet or gives None each time that something changed, until the deadline."""

        def tried() -> T | None:
            try:
                return attempt()
            except NotYet:
                return None

        return self._wait_until(tried, deadline)

    def _wait_until(self, found: Callable[[], T | None], deadline: float) -> T | None:
        """The first result of `found` that is not None, asked whenever something changed; None when the time is up."""
        while (result := found()) is None:
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self.changed.wait(left)
        return result
