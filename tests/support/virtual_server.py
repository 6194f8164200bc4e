"""A server in virtual time: the real slice, the boxes of those who wait for its replies, and its last snapshot."""

import copy
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from paceline.core.chief.common_snapshots import GoBack
from paceline.core.errors import PacelineError
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.policy import Gathered, Policy, build_policy
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.sparse_folding import SparseFolding
from paceline.core.slice.state import SliceState
from paceline.core.values import Base, Outcome, Push, Reply, Sparse, Switch, Vector, View
from paceline.server.common_versions import CommonVersions
from paceline.server.slice_snapshots import Mark, SliceSnapshots, Taken
from tests.support.virtual_time import PATIENCE, Body, Box, Task

if TYPE_CHECKING:
    from tests.support.virtual import Cluster


Row = tuple[int, int]
"""A stream, and the number of a mini-batch of it."""


class BookedFolding(DenseFolding):
    """A folding that writes down what was in each fold."""

    folds: list[tuple[str, int] | NDArray[np.intp]]
    """Worker and clock of a single push; of a sum the elements that are not 0."""

    def fold(self, gathered: Gathered, lr: float) -> None:
        worker = gathered.worker
        self.folds.append((worker, self._clocks.entry(worker).clock) if worker else np.flatnonzero(gathered.total))
        super().fold(gathered, lr)


class BookedSparseFolding(SparseFolding):
    """The same for updates that name their places."""

    folds: list[tuple[str, int] | NDArray[np.intp]]

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        if isinstance(push.update, Sparse):
            self.folds.append((push.worker, push.clock))
        super().fold_one(push, members, rate)

    def close(self) -> None:
        before = self.current().values.copy()
        super().close()
        self.folds.append(np.flatnonzero(self.current().values != before))


class BookedSlice(ModelSlice):
    """A slice that writes down what was in each fold, and when a new policy began."""

    folding: BookedFolding | BookedSparseFolding

    def __init__(self, length: int, policy: Policy, optimizer: Optimizer, term: int, is_sparse: bool) -> None:
        folding = BookedSparseFolding if is_sparse else BookedFolding
        super().__init__(length, policy, optimizer, term, folding=folding)
        self.folding.folds = []
        self._make_due = self._policy_switch.make_due
        self._policy_switch.make_due = self._booked  # type: ignore[method-assign]
        self.begun: list[tuple[int, int, bool]] = []
        """Number of a change of policy, the slice's version then, and whether all members were level with it; in this life."""
        self.first: SliceState | None = None
        """What the newest policy began with."""
        self.good: Kept | None = None
        """The snapshot that the slice was handed last, for a run that diverges."""
        self.went_back: list[tuple[Switch, int | None]] = []
        """Returns to older weights, and the version of these (None: there were none); of all lives."""

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
            if self.switch.back:
                self.went_back.append((self.switch, self.good.version if self.good is not None else None))
                if self.good is not None:
                    self.folding.folds = list(self.good.folds)


@dataclass
class Kept:
    """A snapshot on disk."""

    state: SliceState
    folds: list[Any]
    """Folds that it holds."""

    @property
    def version(self) -> int:
        return int(self.state.table["version"])


@dataclass
class Folder:
    """A server's disk, which a crash leaves as it is: as paceline/server/snapshot_files.py, without files."""

    keep: int
    term: int = 1
    snapshots: list[Kept] = field(default_factory=list)
    spared: int = 0
    spared_good: list[int] = field(default_factory=list)
    good: Kept | None = None
    """What `good_weights` has found last."""

    @property
    def versions(self) -> list[int]:
        return sorted({kept.state.table["version"] for kept in self.snapshots})

    def spare_good(self, versions: Sequence[int]) -> None:
        self.spared_good = sorted(versions)

    def good_weights(self, version: int) -> SliceState | None:
        found = [kept for kept in self.snapshots if kept.version <= version]
        self.good = found[-1] if found else None
        return copy.deepcopy(self.good.state) if self.good is not None else None

    def round_versions(self, numbers: Collection[int] | None = None) -> set[int]:
        assert numbers is None, "there is no store"
        return {kept.state.table["version"] for kept in self.snapshots if kept.state.table["rounds"]}

    def spare(self, version: int) -> None:
        self.spared = version

    def save(self, kept: Kept) -> None:
        self.snapshots.append(kept)
        old, new = self.snapshots[: -self.keep], self.snapshots[-self.keep :]
        kept_on = {self.spared, *self.spared_good}
        self.snapshots = [each for each in old if each.state.table["version"] in kept_on] + new

    def go_back(self, version: int) -> tuple[None, SliceState] | None:
        while self.snapshots and self.snapshots[-1].state.table["version"] != version:
            self.snapshots.pop()
        assert self.snapshots, f"no snapshot of the common version {version} is left"
        self.term += 1
        return None, copy.deepcopy(self.snapshots[-1].state)


@dataclass(frozen=True)
class Known:
    """What a follower reports: its view and change of policy, and what it has of snapshots."""

    view: int
    switch: int
    gone: int
    unseated: Mapping[str, int]
    kept: list[int]
    due: int
    back: int
    common: int
    stored: list[int]
    spared: list[int]


@dataclass(frozen=True)
class News:
    """What the chief answers to a follower."""

    view: View
    due: int
    common: int
    order: GoBack | None
    spared: list[int]


class Server(SliceSnapshots):
    """One slice and the boxes of those who wait for its replies; restarts from its last snapshot."""

    slice: BookedSlice

    def __init__(self, cluster: "Cluster", index: int) -> None:
        super().__init__(cluster.config)
        self.cluster = cluster
        self.index = index
        self.is_up = True
        self.keeps = True
        self.hurry = self._take_named_soon
        self.keeps_snapshots = True
        self.safe_numbers = None
        self.plan: SlicePlan = cluster.plan
        self.boxes: dict[str, Box] = {}
        self.went_back: list[tuple[Switch, int | None]] = []
        self.counted_under: dict[tuple[str, int], int] = {}
        """By worker and clock: the change of policy that the push was computed under."""
        self.brought: dict[tuple[str, int], Sequence[Row]] = {}
        """By worker and clock the rows of each push that is counted, also of those that the policy drops."""
        self.rounds: list[tuple[float, int]] = []
        """When which version came."""
        self.worst_lead = 0
        self.folder = Folder(cluster.config.checkpoint.keep)
        self._being_written: Kept | None = None
        self._open()
        self.slice.initialise(np.zeros(cluster.plan.lengths[index], np.float32), b"zeros")
        self.begin()
        self._write(self._take(self.slice))

    @property
    def term(self) -> int:
        return self.folder.term

    def _open(self) -> None:
        cluster, policy = self.cluster, build_policy(self.cluster.config.policy)
        length, is_sparse = cluster.plan.lengths[self.index], cluster.config.updates == "sparse"
        self.slice = BookedSlice(length, policy, cluster.optimizer, self.term, is_sparse)
        self.slice.went_back = self.went_back
        self._clocks = self.slice.clocks

    def begin(self) -> None:
        """A process starts: it has no view yet."""
        duck = cast(Any, self)
        self.versions = CommonVersions(duck, cast(Any, self.folder), duck, lambda *said, **facts: None)
        self._view = View()
        self._last: Mark | None = None
        self.following = Task(self.cluster, self._follow()) if self.index else None

    def push(self, push: Push, switches: int, rows: Sequence[Row], box: Box) -> None:
        """`switches`: the change of policy that the worker's half is of; `rows`: those that its update is of."""

        def counted() -> list[Reply]:
            entry = self.slice.clocks.entry(push.worker)
            clock, made = entry.clock, self.switch_number
            replies = self.slice.push(push)
            is_used = push.clock > clock and entry.outcome is not Outcome.DROPPED
            assert made == switches or not is_used, f"{push.worker} {push.clock} of {switches} was used under {made}"
            if push.clock > clock:
                self.counted_under[push.worker, push.clock] = switches
                self.brought[push.worker, push.clock] = rows
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
        """Sends replies to those who wait for them; their weights stay pinned until they have arrived."""
        if not self.rounds or self.rounds[-1][1] != self.slice.version:
            self.rounds.append((self.cluster.now, self.slice.version))
        for reply in replies:
            seat, box = self.slice.clocks.seat(reply.worker), self.boxes.pop(reply.worker, None)
            is_last = reply.clock == self.slice.clocks.entry(reply.worker).clock
            if seat is not None and is_last:
                self.worst_lead = max(self.worst_lead, reply.clock + seat.handicap - self.slice.clocks.slowest())
            if box is None or not self.cluster.carry(partial(self._arrive, self.slice, reply, box, is_last)):
                self.slice.release(reply.weights)
        self._look_at_due()

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

    def resume(self, worker: str, incarnation: int) -> Any:
        standing = self.slice.resume(worker, incarnation)
        if standing.durable < standing.clock:
            self.take_snapshot()
        return standing

    # leases
    @property
    def unseated(self) -> dict[str, int]:
        """How far each worker is that has no seat."""
        clocks = self.slice.clocks
        return {worker: mark for worker, mark in clocks.marks().items() if worker not in clocks.view.seats}

    def row_counts(self) -> Counter[Row]:
        """How often each row has come."""
        return Counter(row for rows in self.brought.values() for row in rows)

    def _keep_brought(self, state: SliceState) -> None:
        """What came after this snapshot is lost."""
        clocks = {worker: entry["clock"] for worker, entry in state.table["clocks"].items()}
        self.brought = {
            (worker, clock): rows for (worker, clock), rows in self.brought.items() if clock <= clocks.get(worker, 0)
        }

    # the chief's word
    def follow(self, view: View) -> None:
        """The chief's view has come."""
        self._view = view
        self.deliver(self.slice.view(view))

    def _follow(self) -> Body:
        """As paceline/server/follower.py: asks for news, one call at a time."""
        while True:
            box, versions = Box(), self.versions
            switch, gone = self.kept_switch, self.slice.clocks.gone
            known = Known(
                self._view.number,
                switch,
                gone,
                self.unseated,
                versions.durable,
                versions.due,
                versions.back,
                versions.common,
                versions.stored,
                versions.spared,
            )
            self.cluster.carry(partial(self.cluster.hear, self, self.term, known, box))
            news: News | None = yield box, 2 * PATIENCE
            if news is not None:
                if news.view.number != self._view.number:
                    self.follow(news.view)
                versions.follow(news.order)
                versions.heard(news.due, news.common)
                versions.spare(news.spared)
                versions.bring_good_weights()
                self.deliver(())

    @property
    def lacks_weights(self) -> Switch | None:
        return self.slice.lacks_weights

    def hold(self, number: int, state: SliceState | None) -> None:
        self.slice.good = self.folder.good
        self.deliver(self.slice.hold(number, state))

    @property
    def switch_number(self) -> int:
        """The change of policy that the slice has made last."""
        return self.slice.switch_number

    @property
    def kept_switch(self) -> int:
        """The last one that can't be lost any more."""
        return self.slice.kept_switch if self.keeps_snapshots else self.slice.switch_number

    # snapshots
    def take_snapshot(self) -> None:
        """Writes the present state, unless it will be written at a version that the chief names."""
        if not self.is_up or not self.keeps_snapshots or self.keeps_step:
            return
        with self.none_written():
            taken = self._take_present(self._last)
            if taken is not None:
                self._last = taken.mark
                self._write(taken)

    def take_last_snapshot(self) -> None:
        """As a server does once the run is finished."""
        with self.none_written():
            self._write(self._take(self.slice))

    def _take(self, model_slice: ModelSlice) -> Taken:
        self._folds_taken = list(self.slice.folds)
        return super()._take(model_slice)

    def _take_named_soon(self) -> None:
        """The disk takes its time."""
        taken = self._take_named()
        if taken is None:
            return
        self._being_written = self._copied(taken)
        seconds = self.cluster.rng.uniform(0.01, 0.3)
        self.cluster.after(seconds, partial(self._written, self._being_written))

    def _copied(self, taken: Taken) -> Kept:
        found = taken.snapshot
        found.copies.finish()
        weights, table = found.state.weights.copy(), json.loads(json.dumps(found.state.table))
        taken.model_slice.release(found.weights)
        return Kept(replace(found.state, weights=weights, table=table), self._folds_taken)

    def _written(self, kept: Kept | None) -> None:
        if kept is None or kept is not self._being_written:
            return
        self._being_written = None
        self._is_taking = False
        if self.keeps_snapshots:
            self.folder.save(kept)
            self.note_durable(kept.state.table)

    def _write(self, taken: Taken) -> None:
        self._being_written = self._copied(taken)
        self._written(self._being_written)

    @contextmanager
    def none_written(self) -> Iterator[None]:
        """What is being written is ended before."""
        self._written(self._being_written)
        yield

    def go_back(self, plan: SlicePlan, state: SliceState, term: int) -> None:
        """As SliceDriver.go_back."""
        self._keep_brought(state)
        view, open_from = self._view, self.slice.open_from
        self._open()
        self.slice.view(view)
        self.slice.keep_rounds_open(open_from)
        self._restore(state)
        self.slice.folding.folds = list(self.folder.snapshots[-1].folds)
        self._is_taking = False
        self._last = None
        self.boxes = {}

    # crashes
    def crash(self, downtime: float) -> None:
        self.is_up = False
        self._keep_brought(self.folder.snapshots[-1].state)
        self.boxes = {}
        self._being_written = None
        self._is_taking = False
        if self.following is not None:
            self.following.stop()
        self.cluster.after(downtime, self._start_again)

    def _start_again(self) -> None:
        self.is_up = True
        self.folder.term += 1
        self.folder.spared = 0
        self.folder.spared_good = self.folder.versions
        newest = self.folder.snapshots[-1]
        self._open()
        self._restore(copy.deepcopy(newest.state))
        self.slice.folding.folds = list(newest.folds)
        self.begin()
        self.cluster.server_is_back(self)
