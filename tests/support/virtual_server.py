"""A server in virtual time: the real slice, the boxes of those who wait for its replies, and its last snapshot."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paceline.core.errors import PacelineError
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.state import Phase, SliceState
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.policy import Gathered, Policy, build_policy
from paceline.core.values import Base, Outcome, Push, Reply, Vector, View
from tests.support.virtual_time import Box

if TYPE_CHECKING:
    from tests.support.virtual import Cluster


class BookedFolding(DenseFolding):
    """A folding that writes down what was in each fold."""

    folds: list[tuple[str, int] | NDArray[np.intp]]
    """Worker and clock of a single push; of a sum the elements that are not 0."""

    def fold(self, gathered: Gathered, lr: float) -> None:
        worker = gathered.worker
        self.folds.append((worker, self._clocks.entry(worker).clock) if worker else np.flatnonzero(gathered.total))
        super().fold(gathered, lr)


class BookedSlice(ModelSlice):
    """A slice that writes down what was in each fold, and when a new policy began."""

    folding: BookedFolding

    def __init__(self, length: int, policy: Policy, optimizer: Optimizer, term: int) -> None:
        super().__init__(length, policy, optimizer, term, folding=BookedFolding)
        self.folding.folds = []
        self._make_due = self._policy_switch.make_due
        self._policy_switch.make_due = self._booked  # type: ignore[method-assign]
        self.begun: list[tuple[int, int, bool]] = []
        """Number of a change of policy, the slice's version then, and whether all members were level with it; in this life."""
        self.first: SliceState | None = None
        """What the newest policy began with."""

    @property
    def folds(self) -> list[tuple[str, int] | NDArray[np.intp]]:
        return self.folding.folds

    def _booked(self) -> None:
        before, version = self.switch, self.version
        self._make_due()
        if self.switch is not None and self.switch is not before:
            is_beyond = self.term == 1 and version >= self.switch.version
            assert not is_beyond, f"at {version}, not before the version of {self.switch}"
            is_level = all(self.clocks.progress(worker) == self.version for worker in self.clocks.members)
            self.begun.append((self.switch.number, self.version, is_level))
            self.first = self.state()


class Server:
    """One slice and the boxes of those who wait for its replies; restarts from its last snapshot."""

    def __init__(self, cluster: "Cluster", index: int) -> None:
        self.cluster = cluster
        self.index = index
        self.is_up = True
        self.term = 1
        self.keeps_snapshots = True
        self.boxes: dict[str, Box] = {}
        self.rounds: list[tuple[float, int]] = []
        """When which version came."""
        self.worst_lead = 0
        self.slice = self._new_slice()
        self.slice.initialise(np.zeros(cluster.plan.lengths[index], np.float32), b"zeros")
        self.snapshot: SliceState = self.slice.state()
        self.kept = 0
        """Folds that the snapshot holds."""

    def _new_slice(self) -> BookedSlice:
        cluster = self.cluster
        return BookedSlice(
            cluster.plan.lengths[self.index], build_policy(cluster.config.policy), cluster.optimizer, self.term
        )

    def push(self, push: Push, switches: int, box: Box) -> None:
        """`switches`: the change of policy that the worker's half is of."""

        def counted() -> list[Reply]:
            entry = self.slice.clocks.entry(push.worker)
            clock, made = entry.clock, self.switch_number
            replies = self.slice.push(push)
            is_used = push.clock > clock and entry.outcome is not Outcome.DROPPED
            assert made == switches or not is_used, f"{push.worker} {push.clock} of {switches} was used under {made}"
            return replies

        self._answer(push.worker, box, counted)

    def ask(self, worker: str, incarnation: int, clock: int, box: Box) -> None:
        self._answer(worker, box, lambda: self.slice.ask(worker, incarnation, clock, self.cluster.now))

    def _answer(self, worker: str, box: Box, action: Callable[[], list[Reply]]) -> None:
        if not self.is_up:
            return
        try:
            self.boxes[worker] = box
            before = {name: entry.clock for name, entry in self.slice.clocks.table.items()}
            replies = action()
            assert all(self.slice.clocks.entry(name).clock >= clock for name, clock in before.items()), "a clock shrank"
        except PacelineError as error:
            self.boxes.pop(worker, None)
            self.cluster.carry(partial(box.fill, error))
            return
        self.deliver(replies)
        if self.index == 0:
            self.cluster.run.counted(self.slice.clocks, self.cluster.now)
            self.cluster.publish()

    def deliver(self, replies: Sequence[Reply]) -> None:
        """Sends replies to whoever waits for them; their weights stay pinned until they have arrived."""
        if not self.rounds or self.rounds[-1][1] != self.slice.version:
            self.rounds.append((self.cluster.now, self.slice.version))
        for reply in replies:
            seat, box = self.slice.clocks.seat(reply.worker), self.boxes.pop(reply.worker, None)
            is_last = reply.clock == self.slice.clocks.entry(reply.worker).clock
            if seat is not None and is_last:
                self.worst_lead = max(self.worst_lead, reply.clock + seat.handicap - self.slice.clocks.slowest())
            if box is None or not self.cluster.carry(partial(self._arrive, self.slice, reply, box, is_last)):
                self.slice.release(reply.weights)

    def _arrive(self, source: ModelSlice, reply: Reply, box: Box, is_last: bool) -> None:
        """What the worker gets; and whether the outcome in it is this clock's, or only that of its last push."""
        box.fill((reply, reply.weights.version, reply.weights.values.copy(), is_last))
        source.release(reply.weights)

    def pull(self, version: int | None) -> tuple[Base, Vector] | None:
        found = self.slice.pull(version)
        if found is None:
            return None
        copied = Base(self.term, found.version), found.values.copy()
        self.slice.release(found)
        return copied

    def resume(self, worker: str, incarnation: int, clock: int) -> Any:
        standing, replies = self.slice.resume(worker, incarnation, clock)
        self.deliver(replies)
        return standing

    def follow(self, view: View) -> None:
        """The chief's view has come."""
        self.deliver(self.slice.view(view))

    @property
    def switch_number(self) -> int:
        """The change of policy that the slice has made last."""
        return self.slice.switch_number

    def take_snapshot(self) -> None:
        if self.is_up and self.keeps_snapshots and self.slice.phase is Phase.SERVING:
            self.snapshot = self.slice.state()
            self.kept = len(self.slice.folds)

    def crash(self, downtime: float) -> None:
        self.is_up = False
        self.boxes = {}
        self.cluster.after(downtime, self._restart)

    def _restart(self) -> None:
        self.is_up = True
        self.term = self.term + 1
        before = self.slice
        self.slice = self._new_slice()
        self.slice.restore(copy.deepcopy(self.snapshot))
        self.slice.folding.folds = before.folds[: self.kept]
        self.cluster.server_is_back(self)
