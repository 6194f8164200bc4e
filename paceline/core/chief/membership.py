"""Decides which workers count: the chief's record of seats, leases and incarnations, published as numbered views."""

import re
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from paceline.core.errors import Fenced, PoolFull
from paceline.core.policies.clocks import Clocks
from paceline.core.values import Seat, Switch, View, worker_order

ROUNDS_AHEAD = 2
"""With rounds, a last clock, a switch clock and a snapshot are named for the round after the next."""
_TOGETHER = 2.0
"""With rounds, stop signals that reach members within this time (seconds) count as one stop of all of them."""


@dataclass(slots=True)
class Claim:
    """A claim to one of the pool's seats: taken from Join until the worker leaves or its lease lapses."""

    index: int
    """Which shards belong to it."""
    incarnation: int
    last_beat: float
    is_heard: bool = False
    """The process has sent something since it joined, so a fenced Join can't be a repeat after a lost answer."""
    is_idle: bool = False
    """No heartbeats are expected: the worker has finished, or its lease lapsed and the run waits for it."""
    told_at: float | None = None
    """When the process got its stop signal; its seat is kept for a moment, since all may get one at the same time."""
    has_left: bool = False
    """It got a stop signal, and has left."""
    is_awaited: bool = False
    """The whole run was away, and this process is expected back with the others."""
    heirs: int = 0
    """Processes that have joined to take over the name's held seat, since the last one that made a step."""
    heir_since: float = 0.0
    """When the first of them joined."""
    took_over_at: int | None = None
    """The clock with which the present one took the seat over; None if it has not."""


@dataclass
class Membership:
    """Admits, seats and expels workers. With rounds, a change of the view takes effect in a round to come: the chief's slice
    keeps the one before it open until every server reports that it has the view. Not thread-safe."""

    pool: int
    lease: float
    rounds: bool
    waits_for_lost: bool = False
    start_when: int = 0
    """Members that a run in rounds waits for when it comes back as a whole; 0: all of them."""
    start_timeout: float = 300.0
    """How long it waits, from the first of them on (seconds)."""
    view: View = field(default_factory=View)
    incarnations: dict[str, int] = field(default_factory=dict)
    places: dict[str, Claim] = field(default_factory=dict)
    candidates: dict[str, int] = field(default_factory=dict)
    """Workers that asked for a seat before the start, and their clocks."""
    examples_per_epoch: int = 0
    """Training examples of the data set; part of every view, for the schedule."""
    queue: dict[str, float] = field(default_factory=dict)
    """Workers that found the pool full, and when each last asked (seconds)."""
    level: int = 0
    """Progress of everyone at the start (pushes)."""
    before: dict[str, int] = field(default_factory=dict)
    """Clocks that workers had on the chief's slice when the run was given more epochs."""
    _ticked: float | None = None
    _returned: float | None = None
    """When the first member came back of a run that was away."""

    def join(self, worker: str, was_fenced: bool, now: float) -> int:
        """Admits a new process under this name and returns its incarnation. It takes over the name's place or needs a vacant
        one (PoolFull); a process that was replaced can't replace its successor (Fenced)."""
        place = self.places.get(worker)
        if place is not None and was_fenced and place.is_heard and not place.is_idle:
            raise Fenced(
                f"{worker} lost its seat to incarnation {place.incarnation}, which is alive: nothing is left to do here."
            )
        index = place.index if place else self._vacant_index(worker, now)
        self.queue.pop(worker, None)
        self.incarnations[worker] = self.incarnations.get(worker, 0) + 1
        self.places[worker] = Claim(index, self.incarnations[worker], now)
        self.candidates.pop(worker, None)
        if place is not None and worker in self.view.seats:
            heir = self.places[worker]
            # a Join may be repeated after a lost answer, and a whole run that comes back waits for all its members
            heir.heirs = 0 if place.is_awaited else max(1, place.heirs + place.is_heard)
            heir.heir_since = place.heir_since if place.heirs else now
        self._came_back(now)
        return self.incarnations[worker]

    def _vacate(self, *workers: str) -> None:
        """These are no members any more; their places stay theirs."""
        self._publish({name: seat for name, seat in self.view.seats.items() if name not in workers})

    def candidate(self, worker: str, incarnation: int, clock: int, now: float) -> None:
        """A worker is ready before the start."""
        self.check(worker, incarnation)
        self.candidates[worker] = clock
        self.places[worker].last_beat = now
        self.places[worker].is_heard = True

    def start(self, lasts: dict[str, int], now: float) -> None:
        """The first view: everyone who is ready, all level."""
        seats = {
            worker: Seat(
                self.places[worker].incarnation, self.level - self.before.get(worker, clock), lasts.get(worker)
            )
            for worker, clock in self.candidates.items()
        }
        self.candidates = {}
        self._publish(seats)
        self.renew_leases(now)

    def begin_anew(self, clocks: Clocks) -> None:
        """After the end: all places are vacant, and everyone will start level, in rounds at the version of the slices."""
        self.level = clocks.version if self.rounds else self._begun
        self.before = {worker: entry.clock for worker, entry in clocks.table.items()}
        self.places, self.candidates = {}, {}
        self._publish({})

    def rename_ends(self, last: int | None) -> None:
        """Every member has another last clock from now on."""
        self._publish({worker: replace(seat, last=last) for worker, seat in self.view.seats.items()})

    @property
    def _begun(self) -> int:
        """Below this progress pushes are of an older policy."""
        return 0 if self.view.made is None else self.view.made.version

    def seat(
        self,
        worker: str,
        incarnation: int,
        clock: int,
        last: int | None,
        clocks: Clocks,
        now: float,
        start: int | None = None,
    ) -> None:
        """Counts a ready worker from now on, level with the slowest. `start`: the version with which it begins in rounds (None:
        that of the open one). A worker that takes over a living seat keeps that seat's handicap."""
        self.check(worker, incarnation)
        place, old = self.places[worker], self.view.seats.get(worker)
        place.last_beat = now
        place.is_heard = True
        place.is_idle = False
        if old is not None and old.incarnation == incarnation:
            return
        if old is None:
            place.heirs = 0
        else:
            place.took_over_at = clock
        level = max(self._begun, clocks.level())
        if self.rounds:
            level = clocks.version + 1 if start is None else start
        seat = replace(old, incarnation=incarnation) if old else Seat(incarnation, level - clock, last)
        self._publish(self.view.seats | {worker: seat})

    def beat(self, worker: str, incarnation: int, now: float, clock: int = 0, stopping: bool = False) -> None:
        """Renews the lease; Fenced if the worker no longer counts. `clock`: its last completed one; `stopping`: it got a stop
        signal, so that nobody is back."""
        place, seat = self.places.get(worker), self.view.seats.get(worker)
        if place is not None and place.incarnation == incarnation:
            place.last_beat = now
            place.is_heard = True
            if place.took_over_at is not None and clock > place.took_over_at:
                place.heirs, place.took_over_at = 0, None
            place.is_idle = place.is_idle and seat is None  # a finished worker's late beat changes nothing
            if place.is_awaited and not stopping:  # only the chief was away
                self._end_waiting(now)
        elif seat is None or seat.incarnation != incarnation:
            raise Fenced(f"{worker} (incarnation {incarnation}) was expelled or replaced. Join again.")

    def leave(self, worker: str, incarnation: int, finished: bool = False) -> None:
        """Removes the worker; its place becomes vacant, unless it has `finished` its share, which needs no successor."""
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation:
            return
        if finished:
            place.is_idle = True
        else:
            del self.places[worker]
        self.candidates.pop(worker, None)
        if worker in self.view.seats:
            self._vacate(worker)

    def stop_signal(self, worker: str, incarnation: int, now: float, has_left: bool = False) -> None:
        """The worker's process got a stop signal. With rounds its seat is kept for a moment: if all members get one, the whole
        run stops, no member departs, and the rounds wait until all are back."""
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation:
            return
        if not self.rounds or worker not in self.view.seats:
            if has_left:
                self.leave(worker, incarnation)
            return
        if place.is_awaited and not has_left:
            return
        place.told_at = now if place.told_at is None else place.told_at
        place.has_left = place.has_left or has_left
        if all(self._is_away(member) for member in self.view.seats):
            self._await_all()

    def leaves_alone(self, worker: str, incarnation: int, now: float) -> bool | None:
        """Whether the others go on without this worker, which got a stop signal: then it pushes what it owes before it leaves.
        None: that is not known yet. Without rounds its last push changes nobody else's steps, so it always may."""
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation or worker not in self.view.seats or place.is_awaited:
            return False
        if not self.rounds:
            return True
        return True if place.told_at is not None and now - place.told_at > _TOGETHER else None

    @property
    def awaited(self) -> list[str]:
        """Members that are expected back after the whole run was away."""
        return sorted((worker for worker, place in self.places.items() if place.is_awaited), key=worker_order)

    @property
    def missing(self) -> list[str]:
        """Members that those wait for who are back already."""
        return [] if self._returned is None else self.awaited

    def tick(self, now: float, seats_are_given: bool = True) -> list[str]:
        """Ends lapsed leases and returns their workers; restarts all leases if the chief itself was late. `seats_are_given`:
        whether one that is vacated may be had again."""
        self._let_depart(now)
        if self._returned is not None and now - self._returned > self.start_timeout:
            self._end_waiting(now)
        late = self._ticked is not None and now - self._ticked > self.lease / 2
        self._ticked = now
        if late:
            self.renew_leases(now)
        lapsed = [
            worker
            for worker, place in self.places.items()
            if now - place.last_beat > self.lease and not place.is_idle and not (place.is_awaited or place.has_left)
        ]
        for worker in lapsed:
            if self.waits_for_lost and worker in self.view.seats:
                self.places[worker].is_idle = True
            else:
                self.leave(worker, self.places[worker].incarnation)
        self.end_vain_waits(now, seats_are_given)
        return lapsed

    def end_vain_waits(self, now: float, seats_are_given: bool = True) -> None:
        """Vacates seats that a process has had a lease to take over, and has not, or that one after the other has joined for
        without a step: others don't wait for a worker that does not begin. A process that holds a seat keeps it.
        `seats_are_given`: otherwise only both together count, since it would be for good."""
        if self.waits_for_lost:
            return
        late = {worker for worker, place in self.places.items() if self._is_vain(worker, place, now, seats_are_given)}
        if late:
            self._vacate(*late)

    def _is_vain(self, worker: str, place: Claim, now: float, seats_are_given: bool) -> bool:
        seat = self.view.seats.get(worker)
        if seat is None or seat.incarnation == place.incarnation or place.is_awaited or not place.heirs:
            return False
        is_late, is_repeated = now - place.heir_since > self.lease, place.heirs > 1
        return (is_late or is_repeated) if seats_are_given else (is_late and is_repeated)

    def renew_leases(self, now: float) -> None:
        """Restarts all leases: the chief was away or late, which is not the workers' fault."""
        for place in self.places.values():
            place.last_beat = now
            place.heir_since = now

    def stop(self, clocks: Clocks) -> None:
        """Names the last clock of every member."""
        ends = self._next_ends(clocks)
        seats = {}
        for worker, seat in self.view.seats.items():
            last = ends[worker]
            seats[worker] = replace(seat, last=last if seat.last is None else min(seat.last, last))
        self._publish(seats)

    def name_end(self, worker: str, last: int) -> None:
        """A worker has finished by itself: this was its last clock, so that nobody waits for another one."""
        seat = self.view.seats.get(worker)
        if seat is not None and seat.last is None:
            self._publish(self.view.seats | {worker: replace(seat, last=last)})

    def _next_ends(self, clocks: Clocks) -> dict[str, int]:
        """For every member, a clock that it can't have passed yet: with rounds the next but one (later if a joiner only counts
        from then on), without rounds each worker's next clock."""
        if not self.rounds:
            return {worker: clocks.entry(worker).clock + 1 for worker in self.view.seats}
        final = clocks.version + ROUNDS_AHEAD
        for worker, seat in self.view.seats.items():
            final = max(final, clocks.entry(worker).clock + seat.handicap + 1)
        return {worker: final - seat.handicap for worker, seat in self.view.seats.items()}

    @property
    def is_switching(self) -> bool:
        """Whether a change of policy is under way, even if all its members have left; nobody is seated until it is over."""
        return self.view.switch != self.view.made

    def switch(
        self, policy: dict[str, Any], clocks: Clocks, rate: float | None = None, back: tuple[int, ...] = ()
    ) -> int:
        """Names the clock up to which every member trains under the old policy, as `stop` names the last one, and a version
        beyond any that a slice can reach by then, which it returns: slices may have folded different numbers of pushes.
        `rate`, `back`: as in `Switch`; None: the rate stays."""
        old, ends = self.view.switch, self._next_ends(clocks)
        seats = {worker: replace(seat, switch_clock=ends[worker]) for worker, seat in self.view.seats.items()}
        pushed = sum(max(entry.clock, ends.get(worker, 0)) for worker, entry in clocks.table.items())
        version = (old.version if old else 0) + pushed + len(clocks.table) + 1
        if rate is None:
            rate = old.rate if old else 1.0
        self._publish(seats, Switch((old.number if old else 0) + 1, policy, version, rate, back))
        return version

    def end_switch(self, rounds: bool) -> None:
        """The new policy has begun on every slice."""
        self.rounds = rounds
        self._publish(self.view.begun().seats)
        self.view = replace(self.view, made=self.view.switch)

    def shards(self, worker: str, total: int) -> list[int]:
        """The shards that belong to the worker's place in the pool."""
        return list(range(self.places[worker].index, total, self.pool))

    def state(self) -> dict[str, Any]:
        """The state that a restarted chief needs, as plain JSON values."""
        return {
            "view": self.view.number,
            "seats": {
                worker: (seat.incarnation, seat.handicap, seat.last, seat.switch_clock)
                for worker, seat in self.view.seats.items()
            },
            "examples_per_epoch": self.examples_per_epoch,
            "switch": None if self.view.switch is None else asdict(self.view.switch),
            "made": None if self.view.made is None else asdict(self.view.made),
            "rounds": self.rounds,
            "level": self.level,
            "before": self.before,
            "incarnations": self.incarnations,
            "places": {worker: [place.index, place.is_idle] for worker, place in self.places.items()},
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Continues from `state`; all leases start again. `is_older` in it: a process that it does not know may have a seat."""
        seats = {worker: Seat(*seat) for worker, seat in state["seats"].items()}
        switch, made = (None if found is None else Switch(**found) for found in (state["switch"], state["made"]))
        self.view = View(state["view"], seats, state["examples_per_epoch"], switch, made)
        self.examples_per_epoch = state["examples_per_epoch"]
        self.rounds = state["rounds"]
        self.level = state.get("level", 0)
        self.before = dict(state.get("before", {}))
        self.incarnations = dict(state["incarnations"])
        self.places = {
            worker: Claim(index, self.incarnations[worker], now, is_heard=not state.get("is_older"), is_idle=is_idle)
            for worker, (index, is_idle) in state["places"].items()
            if worker in self.view.seats or is_idle
        }
        if self.rounds:
            self._await_all()

    def check(self, worker: str, incarnation: int) -> None:
        place = self.places.get(worker)
        if place is None or incarnation != place.incarnation:
            raise Fenced(f"{worker} has no claim to a seat with incarnation {incarnation}. Join first.")

    def check_seat(self, worker: str, incarnation: int) -> None:
        """Raises Fenced where the worker does not count, or another process of it."""
        seat = self.view.seats.get(worker)
        if seat is None or incarnation != seat.incarnation:
            raise Fenced(f"{worker} (incarnation {incarnation}) has no seat. Join again.")

    def queued(self, now: float) -> list[str]:
        """Workers that wait for a seat, known by their repeated requests."""
        self.queue = {worker: asked for worker, asked in self.queue.items() if now - asked <= self.lease}
        return sorted(self.queue, key=worker_order)

    # a whole run that stops and comes back
    def _is_away(self, worker: str) -> bool:
        place = self.places.get(worker)
        return place is None or place.told_at is not None or place.is_awaited or place.is_idle

    def _await_all(self) -> None:
        """Every member is away, as far as the chief knows: all keep their seats."""
        self._returned = None
        for worker, place in self.places.items():
            if worker in self.view.seats:
                place.is_awaited = True
                place.told_at = None
                place.has_left = False

    def _came_back(self, now: float) -> None:
        """A process has joined; once enough members are back, the others have their lease to follow."""
        awaited = self.awaited
        if not awaited:
            return
        self._returned = now if self._returned is None else self._returned
        if self.start_when and len(self.view.seats) - len(awaited) >= self.start_when:
            self._end_waiting(now)

    def _end_waiting(self, now: float) -> None:
        """From now on each member's lease counts again."""
        self._returned = None
        for worker in self.awaited:
            self.places[worker].is_awaited = False
            self.places[worker].last_beat = now

    def _let_depart(self, now: float) -> None:
        """Lets members depart that got a stop signal while others did not."""
        gone = [
            (worker, place.incarnation)
            for worker, place in self.places.items()
            if place.has_left and place.told_at is not None and now - place.told_at > _TOGETHER
        ]
        for worker, incarnation in gone:
            self.leave(worker, incarnation)

    def _vacant_index(self, worker: str, now: float) -> int:
        """The place with the worker's own number if it is free, otherwise the first free one."""
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
