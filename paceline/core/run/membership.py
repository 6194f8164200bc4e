"""Who counts: the chief's book of seats, leases and incarnations, published as numbered views."""

import re
from dataclasses import asdict, astuple, dataclass, field, replace
from typing import Any

from paceline.core.errors import Fenced, PoolFull
from paceline.core.sync.clocks import Clocks
from paceline.core.values import Seat, Switch, View, worker_order

ROUNDS_AHEAD = 2
"""In rounds a change of the view takes effect two rounds after the open one."""


@dataclass(slots=True)
class Place:
    """A claim to one of the pool's seats: taken from Join until the worker leaves or its lease lapses."""

    index: int
    """Which shards go with it."""
    incarnation: int
    last_beat: float
    is_heard: bool = False
    """The process that joined has been heard of since: a fenced one can't be repeating a Join whose answer it missed."""
    is_idle: bool = False
    """No heartbeats are due: it has finished, or its lease lapsed and the run waits for it."""


@dataclass
class Membership:
    """Admits, seats and expels workers. Rounds: a change of the view takes effect two rounds on, so that every server has
    the view before it can come that far; the chief's slice keeps the round before open until they say so. Not thread-safe."""

    pool: int
    lease: float
    rounds: bool
    waits_for_lost: bool = False
    view: View = field(default_factory=View)
    incarnations: dict[str, int] = field(default_factory=dict)
    places: dict[str, Place] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)
    """Workers that asked for a seat before the start, and the clock they have."""
    examples_per_epoch: int = 0
    """Of the data set; part of every view, for the schedule."""
    queue: dict[str, float] = field(default_factory=dict)
    """Workers that found the pool full, and when they asked last (seconds)."""
    _ticked: float | None = None

    def join(self, worker: str, was_fenced: bool, now: float) -> int:
        """A new process under this name: its incarnation. It takes over the name's place, else needs a vacant one (PoolFull);
        a process that was replaced before may not replace its successor (Fenced)."""
        place = self.places.get(worker)
        if place is not None and was_fenced and place.is_heard and not place.is_idle:
            raise Fenced(
                f"{worker} lost its seat to incarnation {place.incarnation}, which is alive. Stop this process."
            )
        index = place.index if place else self._vacant_index(worker, now)
        self.queue.pop(worker, None)
        self.incarnations[worker] = self.incarnations.get(worker, 0) + 1
        self.places[worker] = Place(index, self.incarnations[worker], now)
        self.candidates.pop(worker, None)
        return self.incarnations[worker]

    def candidate(self, worker: str, incarnation: int, clock: int, now: float) -> None:
        """A worker is ready before the start."""
        self.check(worker, incarnation)
        self.candidates[worker] = clock
        self.places[worker].last_beat = now
        self.places[worker].is_heard = True

    def start(self, lasts: dict[str, int], now: float) -> None:
        """The first view: everyone who is ready, all level."""
        seats = {
            worker: Seat(self.places[worker].incarnation, -clock, lasts.get(worker))
            for worker, clock in self.candidates.items()
        }
        self.candidates = {}
        self._publish(seats)
        self.renew_leases(now)

    def seat(self, worker: str, incarnation: int, clock: int, last: int | None, clocks: Clocks, now: float) -> None:
        """A worker that is ready counts from now on (in rounds: from the next but one): level with the slowest. One that
        takes over a living seat keeps its handicap."""
        self.check(worker, incarnation)
        place, old = self.places[worker], self.view.seats.get(worker)
        place.last_beat = now
        place.is_heard = True
        place.is_idle = False
        if old is not None and old.incarnation == incarnation:
            return
        level = clocks.version + ROUNDS_AHEAD if self.rounds else clocks.slowest()
        seat = replace(old, incarnation=incarnation) if old else Seat(incarnation, level - clock, last)
        self._publish(self.view.seats | {worker: seat})

    def beat(self, worker: str, incarnation: int, now: float) -> None:
        """Keeps the lease; Fenced where the worker does not count any more."""
        place, seat = self.places.get(worker), self.view.seats.get(worker)
        if place is not None and place.incarnation == incarnation:
            place.last_beat = now
            place.is_heard = True
            place.is_idle = place.is_idle and seat is None  # a finished worker's late beat changes nothing
        elif seat is None or seat.incarnation != incarnation:
            raise Fenced(f"{worker} (incarnation {incarnation}) was expelled or replaced. Join again.")

    def leave(self, worker: str, incarnation: int, finished: bool = False) -> None:
        """The worker goes; its place is vacant, unless it has `finished` its share, which nobody needs to do again."""
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation:
            return
        if finished:
            place.is_idle = True
        else:
            del self.places[worker]
        self.candidates.pop(worker, None)
        if worker in self.view.seats:
            self._publish({name: seat for name, seat in self.view.seats.items() if name != worker})

    def tick(self, now: float) -> list[str]:
        """Ends leases that have lapsed and returns whose; starts them all anew where the chief itself was late."""
        late = self._ticked is not None and now - self._ticked > self.lease / 2
        self._ticked = now
        if late:
            self.renew_leases(now)
        lapsed = [
            worker for worker, place in self.places.items() if now - place.last_beat > self.lease and not place.is_idle
        ]
        for worker in lapsed:
            if self.waits_for_lost and worker in self.view.seats:
                self.places[worker].is_idle = True
            else:
                self.leave(worker, self.places[worker].incarnation)
        return lapsed

    def renew_leases(self, now: float) -> None:
        """Starts all leases anew: the chief was away or late, which is not the workers' fault."""
        for place in self.places.values():
            place.last_beat = now

    def stop(self, clocks: Clocks) -> None:
        """Names the last clock of every member."""
        ends = self._next_ends(clocks)
        seats = {}
        for worker, seat in self.view.seats.items():
            last = ends[worker]
            seats[worker] = replace(seat, last=last if seat.last is None else min(seat.last, last))
        self._publish(seats)

    def _next_ends(self, clocks: Clocks) -> dict[str, int]:
        """A clock for every member that it can't have passed yet: in rounds the next but one (later where a joiner counts
        only from then on, so that everybody's is still to come), else each worker's own next."""
        if not self.rounds:
            return {worker: clocks.entry(worker).clock + 1 for worker in self.view.seats}
        final = clocks.version + ROUNDS_AHEAD
        for worker, seat in self.view.seats.items():
            final = max(final, clocks.entry(worker).clock + seat.handicap + 1)
        return {worker: final - seat.handicap for worker, seat in self.view.seats.items()}

    @property
    def is_switching(self) -> bool:
        """Whether a change of policy is under way, also where all its members have left: nobody new is seated until it is
        over."""
        return self.view.switch != self.view.made

    def switch(self, policy: dict[str, Any], clocks: Clocks) -> None:
        """Names the clock up to which every member trains under the old policy, as `stop` names the last one, and a version
        beyond what any slice can have come to by then: one slice may have folded more of all pushes than another."""
        old, ends = self.view.switch, self._next_ends(clocks)
        seats = {worker: replace(seat, switch_clock=ends[worker]) for worker, seat in self.view.seats.items()}
        pushed = sum(max(entry.clock, ends.get(worker, 0)) for worker, entry in clocks.table.items())
        version = (old.version if old else 0) + pushed + len(clocks.table) + 1
        self._publish(seats, Switch((old.number if old else 0) + 1, policy, version))

    def end_switch(self, rounds: bool) -> None:
        """The new policy has begun on every slice."""
        self.rounds = rounds
        self._publish(self.view.begun().seats)
        self.view = replace(self.view, made=self.view.switch)

    def shards(self, worker: str, total: int) -> list[int]:
        """The shards that go with the worker's place in the pool."""
        return list(range(self.places[worker].index, total, self.pool))

    def state(self) -> dict[str, Any]:
        """What a restarted chief needs: plain JSON values."""
        return {
            "view": self.view.number,
            "seats": {worker: astuple(seat) for worker, seat in self.view.seats.items()},
            "examples_per_epoch": self.examples_per_epoch,
            "switch": None if self.view.switch is None else asdict(self.view.switch),
            "made": None if self.view.made is None else asdict(self.view.made),
            "rounds": self.rounds,
            "incarnations": self.incarnations,
            "places": {worker: [place.index, place.is_idle] for worker, place in self.places.items()},
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Goes on where `state` was; all leases start anew."""
        seats = {worker: Seat(*seat) for worker, seat in state["seats"].items()}
        switch, made = (None if found is None else Switch(**found) for found in (state["switch"], state["made"]))
        self.view = View(state["view"], seats, state["examples_per_epoch"], switch, made)
        self.examples_per_epoch = state["examples_per_epoch"]
        self.rounds = state["rounds"]
        self.incarnations = dict(state["incarnations"])
        self.places = {
            worker: Place(index, self.incarnations[worker], now, is_heard=True, is_idle=is_idle)
            for worker, (index, is_idle) in state["places"].items()
            if worker in self.view.seats or is_idle
        }

    def check(self, worker: str, incarnation: int) -> None:
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation:
            raise Fenced(f"{worker} has no claim to a seat with incarnation {incarnation}. Join first.")

    def queued(self, now: float) -> list[str]:
        """Workers that wait for a seat: they ask again and again."""
        self.queue = {worker: asked for worker, asked in self.queue.items() if now - asked <= self.lease}
        return sorted(self.queue, key=worker_order)

    def _vacant_index(self, worker: str, now: float) -> int:
        """The place with the worker's own number where it is free, else the first free one."""
        taken = {place.index for place in self.places.values()}
        free = [index for index in range(self.pool) if index not in taken]
        if not free:
            self.queue[worker] = now
            raise PoolFull(
                f"All {self.pool} seats are taken; {worker} waits for one. Raise 'workers' for a larger pool."
            )
        number = re.search(r"\d+$", worker)
        own = int(number[0]) if number else free[0]
        return own if own in free else free[0]

    def _publish(self, seats: dict[str, Seat], switch: Switch | None = None) -> None:
        self.view = View(
            self.view.number + 1, seats, self.examples_per_epoch, switch or self.view.switch, self.view.made
        )
