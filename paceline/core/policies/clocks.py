"""Keeps every worker's clock on one slice: the table makes repeats harmless, and policies compare its entries."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.core.values import Outcome, Push, Seat, Verdict, View, worker_order


@dataclass(slots=True)
class Entry:
    """One worker's line in the table: its whole recorded past, and the answer to a repeat of its last push."""

    incarnation: int = 0
    clock: int = 0
    """Pushes this worker has completed here; only grows, across its incarnations too."""
    seen: int | None = None
    """Pushes counted on the slice up to this worker's last one; None since it took its seat."""
    outcome: Outcome = Outcome.FOLDED
    reason: str = ""
    staleness: int = 0
    others: int | None = None
    """Pushes by others between this worker's last two ([SHAT] c_i)."""
    lr: float = 0.0
    round: int = 0
    """Of the last push (`Push.round`)."""
    version: int = 0
    """The slice's version when the last push was counted."""
    examples: int = 0
    """Training examples behind all of its pushes."""
    position: int | None = None
    """Mini-batches that its script had done with the last push; None: the pushes don't say."""
    position_before: int | None = None
    """The same before that push."""

    @property
    def mark(self) -> int:
        """How far the worker is: mini-batches of a script, otherwise its clock."""
        return self.clock if self.position is None else self.position

    def facts(self) -> dict[str, Any]:
        """Its plain values by name; asdict would copy each deeply, in ten times as long."""
        return {name: getattr(self, name) for name in self.__slots__}


class Clocks:
    """Each worker's pushes so far, the members that count, and the slice's version. `progress` = clock + handicap."""

    def __init__(self) -> None:
        self.version = 0
        """Folds applied to the slice."""
        self.pushes = 0
        """Pushes of any worker counted on the slice."""
        self.examples = 0
        """Training examples of these pushes."""
        self.discarded = 0
        """Those of them that are in the weights no more, since a diverged run has gone back to older ones."""
        self.buffered = 0
        """Pushes in the sum that folds next."""
        self.round_examples = 0.0
        """Training examples of the last round that has closed."""
        self._closed = 0
        """Those that were trained by then."""
        self.view = View()
        self.table: dict[str, Entry] = {}
        """The workers that have ever been members, by name."""
        self.durable: dict[str, int] = {}
        """The clock that each of them has in the newest snapshot on disk."""
        self.fresh: set[str] = set()
        """The workers whose last push was computed on weights of this term."""
        self.gone = 0
        """Training examples behind the pushes of workers that are no members."""
        self._repeats: dict[str, int] = {}
        """The version at which a worker last repeated a clock, before its first new one since it took its seat."""
        self._slowest: int | None = None
        """The result of `slowest`; None: it is not known."""
        self._levels: Counter[int] = Counter()
        """How many members with clocks still to do have each progress, while `_slowest` is known."""
        self._order: list[str] | None = None

    def entry(self, worker: str) -> Entry:
        """The worker's entry; an empty one, which is not kept, where it has never been a member."""
        found = self.table.get(worker)
        return Entry() if found is None else found

    @classmethod
    def of(cls, view: View, version: int, clocks: Mapping[str, int]) -> "Clocks":
        """Returns a copy of what compares workers' progress: members, version, and each worker's clock."""
        found = cls()
        found.view, found.version = view, version
        found.table = {worker: Entry(clock=clock) for worker, clock in clocks.items()}
        return found

    @property
    def trained(self) -> int:
        """Training examples of the pushes that count."""
        return self.examples - self.discarded

    def close_round(self) -> None:
        """A round has closed, with all that is counted."""
        self.begin_round(float(self.trained - self._closed))

    def begin_round(self, last: float) -> None:
        """The slice is as it was after a round of `last` examples."""
        self.round_examples = last
        self._closed = self.trained

    @property
    def members(self) -> Iterable[str]:
        return self.view.seats.keys()

    def progress(self, worker: str) -> int:
        """Progress, comparable between workers: a joiner's handicap puts it level with the slowest. Clocks after the last
        one, which a slice may know from before a restart of the chief, don't count."""
        seat, clock = self.view.seats[worker], self.entry(worker).clock
        if seat.last is not None:
            clock = min(clock, seat.last)
        if seat.switch_clock is not None:
            clock = min(clock, seat.switch_clock)
        return clock + seat.handicap

    def has_ended(self, worker: str, clock: int | None = None) -> bool:
        """Whether the member has reached the last clock named for it; `clock`: whether this one is the last."""
        last = self.view.seats[worker].last
        return last is not None and (self.entry(worker).clock if clock is None else clock) >= last

    def awaits_switch(self, worker: str) -> bool:
        """Whether the member has reached the clock up to which it trains under the old policy."""
        switch_clock = self.view.seats[worker].switch_clock
        return switch_clock is not None and self.entry(worker).clock >= switch_clock

    def is_done(self, worker: str) -> bool:
        """Whether the member sends nothing more, at least under this policy."""
        return self.has_ended(worker) or self.awaits_switch(worker)

    def is_buffered(self, worker: str) -> bool:
        """Whether the worker's last push is in the sum that folds next."""
        entry = self.entry(worker)
        return entry.outcome is Outcome.BUFFERED and entry.version == self.version

    def has_come(self, worker: str) -> bool:
        """Whether the worker has pushed at the present version, or asked again; what became of its push is no matter."""
        entry = self.entry(worker)
        return self._repeats.get(worker) == self.version or (entry.seen is not None and entry.version == self.version)

    def note_repeat(self, worker: str) -> None:
        """The worker has come with a clock that is counted here already. If it has counted none since it took its seat, another
        slice may have lost that clock and keep the worker waiting: it has come here, too."""
        if self.entry(worker).seen is None:
            self._repeats[worker] = self.version

    def marks(self) -> dict[str, int]:
        """How far each worker is."""
        return {worker: entry.mark for worker, entry in self.table.items()}

    def slowest(self) -> int:
        """Progress of the slowest member with clocks still to do; of the fastest if none has any; 0 without members."""
        if self._slowest is None:
            self._levels = Counter(self.progress(worker) for worker in self.members if not self.is_done(worker))
            everyone = (self.progress(worker) for worker in self.members)
            self._slowest = min(self._levels) if self._levels else max(everyone, default=0)
        return self._slowest

    def level(self) -> int:
        """Progress with which a joiner begins: that of the slowest member that has pushed since it took its seat. If the others
        counted, the slowest would stay where it is, once workers join more often than a step lasts."""
        begun = (
            self.progress(worker)
            for worker in self.members
            if self.entry(worker).seen is not None and not self.is_done(worker)
        )
        return min(begun, default=self.slowest())

    def lead(self, worker: str) -> int:
        """How many clocks the worker is ahead of the slowest."""
        return self.progress(worker) - self.slowest()

    def advance(self, push: Push, verdict: Verdict, staleness: int, lr: float, is_fresh: bool = True) -> None:
        """Counts a push and stores the scalars of its reply. `is_fresh`: it was computed on weights of this term."""
        entry = self.entry(push.worker)
        before = None if self._slowest is None or self.is_done(push.worker) else self.progress(push.worker)
        entry.others = None if entry.seen is None else self.pushes - entry.seen
        self.pushes += 1
        self.examples += push.counted
        entry.clock = push.clock
        entry.examples += push.counted
        entry.position_before = entry.position
        entry.position = None if push.position is None else push.position.batches
        entry.seen = self.pushes
        entry.version = self.version
        self._moved(push.worker, before)
        entry.outcome, entry.reason = verdict
        (self.fresh.add if is_fresh else self.fresh.discard)(push.worker)
        entry.staleness = staleness
        entry.lr = lr
        entry.round = push.round

    def _moved(self, worker: str, before: int | None) -> None:
        """Keeps `slowest` after a push. `before`: the worker's progress before it; None where that did not count."""
        if before is None:
            self._slowest = None
            return
        self._levels[before] -= 1
        if not self.is_done(worker):
            self._levels[self.progress(worker)] += 1
        if not self._levels[before]:
            del self._levels[before]
            if before == self._slowest:
                self._slowest = min(self._levels, default=None)

    def take_view(self, view: View) -> None:
        """Takes the new view; a new incarnation starts without a last push."""
        for worker, seat in view.seats.items():
            entry = self.table.get(worker)
            if entry is None:
                entry = self.table[worker] = Entry()
            if entry.incarnation != seat.incarnation:
                entry.incarnation = seat.incarnation
                entry.seen = None
                entry.round = 0
        self.view = view
        self.gone = sum(entry.examples for worker, entry in self.table.items() if worker not in view.seats)
        self._slowest = self._order = None

    def forget_pushes(self) -> None:
        """Makes every worker's next push count as the first of its seat."""
        for entry in self.table.values():
            entry.seen = None
        self._slowest = None

    def in_order(self) -> Sequence[str]:
        """Members in worker order, the order in which BSP adds."""
        if self._order is None:
            self._order = sorted(self.members, key=worker_order)
        return self._order

    def seat(self, worker: str) -> Seat | None:
        return self.view.seats.get(worker)


Reading = Callable[[], Clocks]
"""Returns the clocks of the chief's slice to who names clocks by them: from then on they stand still, until the slice has the
view that names these."""
