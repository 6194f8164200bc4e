"""The snapshots of a driver's slice: taken under its lock, copied and written while training goes on. In lock-step the chief
names the version, and other servers may not have theirs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.core.policies.clocks import Clocks
from paceline.core.settings.config import Config
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import Phase, SliceState, Snapshot
from paceline.core.values import View
from paceline.server.slice_summary import SliceSummary

Mark = tuple[int, int]
"""A slice's version and the pushes that it has counted."""
_BETWEEN_BLOCKS = 0.001
"""Pause (seconds) between two blocks of a snapshot's copies, so that threads that wait for the lock get it."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A snapshot of one moment, still to be copied and written."""

    model_slice: ModelSlice
    plan: SlicePlan
    snapshot: Snapshot
    mark: Mark


class NamedSnapshots:
    """What the driver keeps of them. Guarded by the driver's lock."""

    def __init__(self) -> None:
        self.due = 0
        """The named version; 0: none is named."""
        self._is_ahead = False
        """It is not reached yet."""
        self.taken: Taken | None = None
        """The snapshot at that version, until it is written."""
        self._tables: dict[int, dict[str, Any]] = {}
        """The tables of snapshots on disk that other servers may not have, by version."""

    def name(self, due: int) -> None:
        """The chief names a version; repeats change nothing."""
        if due != self.due:
            self.due = due
            self._is_ahead = due > 0

    def is_reached(self, version: int) -> bool:
        """Whether the slice has just come to the named version; true once."""
        if not self._is_ahead or version < self.due:
            return False
        self._is_ahead = False
        return version == self.due

    def written(self, table: dict[str, Any]) -> None:
        """A snapshot with this table is on disk here."""
        self._tables[table["version"]] = table

    def common(self, version: int) -> dict[str, Any] | None:
        """All servers have the snapshot of this version: its table, if that is news."""
        table = self._tables.pop(version, None)
        if table is not None:
            self._tables = {of: each for of, each in self._tables.items() if of > version}
        return table

    def forget(self) -> None:
        """All slices go on from an older version, or every snapshot is common."""
        self._tables = {}
        self.taken = None

    def restart(self) -> None:
        """The slice has come back from a snapshot."""
        self.forget()
        self.due = 0
        self._is_ahead = False


class SliceSnapshots:
    """What `SliceDriver` does for them."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._lock = threading.RLock()
        self.changed = threading.Condition(self._lock)
        self.plan: SlicePlan | None = None
        self.slice: ModelSlice | None = None
        self._clocks = Clocks()
        self._view = View()
        self.summary = SliceSummary()
        """The slice's numbers after its last change. Any thread may read them, and waits for nothing."""
        self.keeps = False
        """Whether snapshots are written: then a change of policy counts as made once one holds it."""
        self.hurry: Callable[[], None] = lambda: None
        """Called where a snapshot is wanted soon."""
        self.is_view_written: Callable[[], bool] = lambda: True
        """Whether the view in force can't be lost any more. `look_again` says that it may be so now."""
        self._named = NamedSnapshots()
        self._is_taking = False
        """A snapshot is being copied or written."""

    @contextmanager
    def snapshot(
        self, last: Mark | None = None, is_named: bool = False
    ) -> Iterator[tuple[SlicePlan, SliceState, Mark] | None]:
        """The slice's state of one moment, and its mark, which other states don't have. The state lasts as long as the context,
        and training goes on. None while there is nothing to keep, or still that of the `last` mark. `is_named`: the state at
        the named version, if that was taken."""
        taken = self._take_named() if is_named else self._take_present(last)
        if taken is None:
            yield None
            return
        copies = taken.snapshot.copies
        try:
            while not copies.is_done:
                with self.changed:
                    copies.advance()
                time.sleep(_BETWEEN_BLOCKS)
            with self.changed:  # a snapshot with a process that the chief has forgotten could not be gone on from
                self.changed.wait_for(self.is_view_written)
            yield taken.plan, taken.snapshot.state, taken.mark
        finally:
            with self.changed:
                taken.model_slice.supply(copies.made.values())
                taken.model_slice.release(taken.snapshot.weights)
                self._is_taking = False
                self.changed.notify_all()

    @property
    def has_named(self) -> bool:
        """Whether the state at the named version waits to be written."""
        return self._named.taken is not None

    @property
    def due(self) -> int:
        """The version at which the chief wants a snapshot; 0: none is named."""
        return self._named.due

    def name(self, due: int) -> None:
        """The chief names the version of the next snapshot."""
        with self.changed:
            self._named.name(due)
            self._look_at_due()

    @property
    def keeps_step(self) -> bool:
        """Whether snapshots are written at named versions only: there are rounds, which other servers have too. The last
        version needs no name."""
        with self.changed:
            model_slice = self.slice
            if model_slice is None or self.config.servers < 2 or not model_slice.policy.rounds:
                return False
            clocks = self._clocks  # without a view, as after a start, nobody has ended
            is_over = clocks.view.number > 0 and all(map(clocks.has_ended, clocks.members))
            return not is_over and model_slice.switch_number == model_slice.kept_switch

    def is_common(self, version: int) -> None:
        """In rounds: all servers have a snapshot of this version. Only then are its pushes safe, since all may go back."""
        with self.changed:
            table = self._named.common(version)
            if self.slice is not None and table is not None:
                self.slice.note_durable(table)
                self._summarise()

    def note_durable(self, table: dict[str, Any] | None) -> None:
        """The snapshot with this table is safely on disk; None: none can be written."""
        with self.changed:
            self.keeps = table is not None
            if self.slice is not None and table is not None:
                if self.keeps_step:
                    self._named.written(table)
                else:
                    self._named.forget()
                    self.slice.note_durable(table)
            self._summarise()
            self.changed.notify_all()

    # inside
    def _summarise(self, pusher: str | None = None) -> None:
        """Copies the slice's numbers after a change. `pusher`: only its push has changed the clocks. Hold the lock."""
        found, clocks = self.slice, self._clocks
        if found is None:
            switch = self._view.switch.number if self._view.switch is not None else 0
        else:
            switch = found.kept_switch if self.keeps else found.switch_number
        self.summary = SliceSummary(
            clocks.version,
            clocks.view,
            {worker: entry.clock for worker, entry in clocks.table.items()}
            if pusher is None
            else {**self.summary.clocks, pusher: clocks.entry(pusher).clock},
            clocks.trained,
            clocks.gone,
            {worker: mark for worker, mark in clocks.marks().items() if worker not in clocks.view.seats}
            if pusher is None
            else self.summary.unseated,
            clocks.round_examples,
            found is not None and found.phase is not Phase.EMPTY,
            switch,
        )

    def _restore(self, state: SliceState) -> None:
        """The slice goes on from a snapshot. Hold the lock."""
        assert self.slice is not None
        self.slice.restore(state)
        self.keeps = True  # as it did before; otherwise workers that leave would wait in vain for a snapshot
        self._named.restart()
        if self.keeps_step:  # the others may lack it
            self._named.written(state.table)
            self.slice.clocks.durable = {}

    def _take_present(self, last: Mark | None) -> Taken | None:
        """Takes the lock by itself."""
        with self.changed:
            found = self.slice
            if found is None or not self._has_news(last):
                return None
            lacks, length = found.lacks, found.length
        arrays = [np.full(length, 0, np.float32) for _ in range(lacks)]  # touched here: a first touch takes its time
        with self.changed:
            found.supply(arrays)
            return self._take(found)

    def _take_named(self) -> Taken | None:
        """Takes the lock by itself."""
        with self.changed:
            taken, self._named.taken = self._named.taken, None
            return taken

    def _take(self, model_slice: ModelSlice) -> Taken:
        assert self.plan is not None
        self._is_taking = True
        mark = (model_slice.version, model_slice.clocks.pushes)
        return Taken(model_slice, self.plan, model_slice.snapshot(), mark)

    def _look_at_due(self) -> None:
        """Takes a snapshot if a round has closed at the named version, unless the last one is still being written."""
        found = self.slice
        if found is None or not self._named.is_reached(found.version):
            return
        if found.policy.rounds and not self._is_taking:
            self._named.taken = self._take(found)
            self.hurry()

    def _has_news(self, last: Mark | None) -> bool:
        if self.slice is None or self.plan is None or self.slice.phase is not Phase.SERVING:
            return False
        return last != (self.slice.version, self.slice.clocks.pushes)
