"""Where every worker stands on one slice: the table that makes repeats harmless, and that policies compare."""

from collections.abc import Iterable
from dataclasses import dataclass

from paceline.core.values import Outcome, Push, Seat, Verdict, View, worker_order


@dataclass(slots=True)
class Entry:
    """One worker's line in the table: all that is kept of its past, and what a repeat of its last push is answered with."""

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
    version: int = 0
    """The slice's version when the last push was counted."""


class Clocks:
    """worker -> pushes so far, who counts, and the slice's version. `progress` = clock + handicap."""

    def __init__(self) -> None:
        self.version = 0
        """Folds applied to the slice."""
        self.pushes = 0
        """Pushes of any worker counted on the slice."""
        self.examples = 0
        """Training examples behind them."""
        self.buffered = 0
        """Pushes in the sum that folds next."""
        self.is_recovering = False
        """Back from a snapshot, and members have not all said yet where they stand: too low to seat or to stop by."""
        self.view = View()
        self.table: dict[str, Entry] = {}
        self._slowest: int | None = None
        """What `slowest` found, until a clock or the view changes."""

    def entry(self, worker: str) -> Entry:
        found = self.table.get(worker)
        return found if found is not None else self.table.setdefault(worker, Entry())

    @property
    def members(self) -> Iterable[str]:
        return self.view.seats.keys()

    def progress(self, worker: str) -> int:
        """Comparable between workers: a joiner's handicap puts it level with the slowest. Clocks after the last one, which a
        slice may know from before a restart of the chief, don't count."""
        seat, clock = self.view.seats[worker], self.entry(worker).clock
        if seat.last is not None:
            clock = min(clock, seat.last)
        if seat.switch_clock is not None:
            clock = min(clock, seat.switch_clock)
        return clock + seat.handicap

    def has_ended(self, worker: str) -> bool:
        """Whether the member has reached the last clock named for it."""
        last = self.view.seats[worker].last
        return last is not None and self.entry(worker).clock >= last

    def awaits_switch(self, worker: str) -> bool:
        """Whether the member has reached the clock up to which it trains under the old policy."""
        switch_clock = self.view.seats[worker].switch_clock
        return switch_clock is not None and self.entry(worker).clock >= switch_clock

    def is_done(self, worker: str) -> bool:
        """Whether nothing more is to come from the member, under this policy at least."""
        return self.has_ended(worker) or self.awaits_switch(worker)

    def is_buffered(self, worker: str) -> bool:
        """Whether the worker's last push is in the sum that folds next."""
        entry = self.entry(worker)
        return entry.outcome is Outcome.BUFFERED and entry.version == self.version

    def is_counted(self, worker: str) -> bool:
        """Whether the worker's last push was counted at the present version, whatever became of it."""
        entry = self.entry(worker)
        return entry.seen is not None and entry.version == self.version

    def slowest(self) -> int:
        """Progress of the slowest member that still has clocks to go; of the fastest where none has; 0 without members."""
        if self._slowest is None:
            running = [self.progress(worker) for worker in self.members if not self.is_done(worker)]
            everyone = (self.progress(worker) for worker in self.members)
            self._slowest = min(running) if running else max(everyone, default=0)
        return self._slowest

    def lead(self, worker: str) -> int:
        """Clocks by which the worker is ahead of the slowest."""
        return self.progress(worker) - self.slowest()

    def advance(self, push: Push, verdict: Verdict, staleness: int, lr: float) -> None:
        """Counts a push and stores the scalars of its reply."""
        entry = self.entry(push.worker)
        was_ahead = self._slowest is not None and self.progress(push.worker) > self._slowest
        entry.others = None if entry.seen is None else self.pushes - entry.seen
        self.pushes += 1
        self.examples += push.examples
        entry.clock = push.clock
        entry.seen = self.pushes
        entry.version = self.version
        if not was_ahead:  # of one that was, the push leaves the slowest where it is
            self._slowest = None
        entry.outcome, entry.reason = verdict
        entry.staleness = staleness
        entry.lr = lr

    def reach(self, worker: str, clock: int) -> None:
        """The worker has completed this clock, whatever the slice knows of it."""
        entry = self.entry(worker)
        entry.clock = max(entry.clock, clock)
        self._slowest = None

    def take_view(self, view: View) -> None:
        """Who counts from now on; a new incarnation starts without a last push."""
        for worker, seat in view.seats.items():
            entry = self.entry(worker)
            if entry.incarnation != seat.incarnation:
                entry.incarnation = seat.incarnation
                entry.seen = None
        self.view = view
        self._slowest = None

    def forget_pushes(self) -> None:
        """Every worker's next push is counted like the first of its seat."""
        for entry in self.table.values():
            entry.seen = None

    def in_order(self) -> list[str]:
        """Members in worker order, in which BSP adds."""
        return sorted(self.members, key=worker_order)

    def seat(self, worker: str) -> Seat | None:
        return self.view.seats.get(worker)
