"""Who computes which mini-batches: streams of them are leased in small ranges, so that what a worker leaves undone goes to the
others, and each row of a stream is in the model once.

A stream is what one seat's shards give (paceline/data/sampler.py); its rows are mini-batches, numbered from 0 over all epochs.
A worker's way maps its clocks to rows. It is written down before the worker hears of it, so that a process that is started
again computes the same; where a worker has left, what the slices lack of its way becomes free."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

NOTHING = -1
"""The stream of clocks that compute nothing."""
_KEPT = 256
"""Leases of a worker's way that are kept: those of clocks that a server may go back to."""


class Lease(NamedTuple):
    """A part of a worker's way: the clocks after `after`, of which each takes the next `width` rows of the stream, and the last
    one what is left below `stop`. Where nothing must be computed, each clock has `width` rows of NOTHING."""

    after: int
    stream: int
    start: int
    stop: int
    width: int = 1
    has: tuple[int, ...] = ()
    """Servers whose slices have these rows already: they get an empty push."""

    @property
    def end(self) -> int:
        """The last clock."""
        return self.after - (self.start - self.stop) // self.width  # the last clock may have fewer rows

    def rows(self, clock: int) -> range:
        """Those of one of its clocks."""
        start = self.start + (clock - self.after - 1) * self.width
        return range(start, min(start + self.width, self.stop))

    def until(self, clock: int) -> Self:
        """Its part up to this clock, which is not its last one."""
        return self._replace(stop=self.start + (clock - self.after) * self.width)

    def beyond(self, clock: int) -> Self:
        """Its part after this clock."""
        return self._replace(after=clock, start=self.start + (clock - self.after) * self.width)

    def pieces(self, clocks: Iterable[int]) -> Iterable[Self]:
        """Its parts, cut after these clocks."""
        lease = self
        for clock in sorted({clock for clock in clocks if self.after < clock < self.end}):
            yield lease.until(clock)
            lease = lease.beyond(clock)
        yield lease

    def precedes(self, other: "Lease") -> bool:
        """Whether the other one has the next clocks and rows, so that both are one lease."""
        same = (self.stream, self.width, self.has, self.end, self.stop)
        is_whole = (self.stop - self.start) % self.width == 0
        return is_whole and same == (other.stream, other.width, other.has, other.after, other.start)


class Free(NamedTuple):
    """Rows that a worker has left undone."""

    start: int
    stream: int
    stop: int
    has: tuple[int, ...] = ()
    """As in `Lease`."""


class Wish(NamedTuple):
    """What a worker asks for."""

    worker: str
    after: int
    """The clock after which it needs rows."""
    width: int
    """Rows of a clock."""
    most: int
    """Rows that it wants, at most."""
    rows: int = 0
    """Rows of a stream in all epochs of its script; 0: it has none."""
    last: int | None = None
    """It leaves, and computes this many rows of that clock; None: it stays."""
    place: int = 0
    """That of its stream."""


class Pace(NamedTuple):
    """How the run trains just now."""

    is_level: bool
    """Each member comes to the end of its stream, with the others or by itself: nobody takes rows from it."""
    is_exact: bool
    """Nothing is computed beyond the epochs: the run's end is named, or workers end by themselves."""


class Leases:
    """Every worker's way, and what is free. Rows from `end` on are leased only once nothing before it is left: examples that
    were not learned from are made up for. Not thread-safe."""

    def __init__(self, streams: int) -> None:
        self.end = 0
        """The row at which every stream has had all of its epochs."""
        self.number = 0
        """Grows with every change."""
        self._next = [0] * streams
        """The first row of each stream that nobody has had yet."""
        self._free: list[Free] = []
        self._ways: dict[str, list[Lease]] = {}
        self._asked: dict[str, int] = {}
        """By worker a clock that it has come to: no slice has newer ones of an older policy."""

    def grant(self, wish: Wish, lived_in: Collection[int], marks: Mapping[str, int], pace: Pace) -> Lease:
        """The lease that has the worker's next clock: one that it holds already, or a new one.

        `lived_in`: places of the members; `marks`: the clock of each member on the chief's slice."""
        way = self._ways.get(wish.worker, [])
        if not self._ways:  # a run from before there were leases is about as far everywhere
            self._next = [max(row, wish.after * wish.width) for row in self._next]
        held = _at(way, wish.after)
        if held is not None and self._is_of_another_policy(held, wish, way):
            held = self._rewidth(wish, held)
        self._asked[wish.worker] = max(wish.after, self._asked.get(wish.worker, 0))
        if held is not None and wish.last is not None:
            return self._shorten(wish, held)
        if held is None:
            later = next((lease.after for lease in way if lease.after > wish.after), None)
            if later is not None:
                lease = Lease(wish.after, NOTHING, 0, later - wish.after)
            else:
                lease = self._new(wish, lived_in, pace.is_level) or self._beyond(wish, marks, pace.is_exact)
            self.number += 1
            way = self._ways[wish.worker] = _joined([*way, lease])[-_KEPT:]
            held = _at(way, wish.after)
            assert held is not None
        return held

    def _shorten(self, wish: Wish, held: Lease) -> Lease:
        """The worker leaves after its next clock, of which it computes some rows: all others that it has are free."""
        rows, way = held.rows(wish.after + 1), self._ways[wish.worker]
        stop = rows.start + min(wish.last or 0, len(rows))
        last = held._replace(after=wish.after, start=rows.start, stop=stop)
        before = [
            lease if lease.end <= wish.after else lease.until(wish.after) for lease in way if lease.after < wish.after
        ]
        later = [lease for lease in way if lease.after >= held.end]
        for lease in (held._replace(start=stop), *later):
            if lease.start < lease.stop and lease.stream != NOTHING:
                self._free.append(Free(lease.start, lease.stream, lease.stop, lease.has))
        self._free.sort()
        self._ways[wish.worker] = [*before, last]
        self.number += 1
        return last

    def _is_of_another_policy(self, held: Lease, wish: Wish, way: Sequence[Lease]) -> bool:
        """Whether the policy has changed since. Clocks that a slice may have stay as they are."""
        is_new = held is way[-1] and wish.after >= self._asked.get(wish.worker, 0)
        return is_new and held.stream != NOTHING and held.width != wish.width

    def _rewidth(self, wish: Wish, held: Lease) -> Lease:
        """The policy has changed: the rest of the worker's lease in clocks of another width."""
        rest = held.beyond(wish.after)._replace(width=wish.width)
        way = self._ways[wish.worker]
        way[-1:] = [held.until(wish.after), rest] if held.after < wish.after else [rest]
        self.number += 1
        return rest

    @property
    def untrained(self) -> int:
        """Rows of the epochs that nobody has."""
        unleased = sum(max(0, self.end - row) for row in self._next)
        return unleased + sum(max(0, min(free.stop, self.end) - free.start) for free in self._free)

    @property
    def holders(self) -> list[str]:
        """Who has a way."""
        return list(self._ways)

    def clocks_left(self, marks: Mapping[str, int], places: Mapping[str, int], width: int) -> float:
        """How many clocks of `width` rows it takes until all rows of the epochs are done, if each member comes to the end of
        its stream; infinite while others are nobody's. `marks`: each member's clock; `places`: those of their streams."""
        unleased = [max(0, self.end - row) for row in self._next]
        own = {worker: unleased[place] for worker, place in places.items() if place < len(unleased)}
        if self.untrained > sum(own.values()):
            return math.inf
        clocks = (self._held(worker, mark, width) + -(-own.get(worker, 0) // width) for worker, mark in marks.items())
        return max(clocks, default=0)

    def _held(self, worker: str, mark: int, width: int) -> int:
        """How many clocks the leases of a worker have after this one, as they are or under a policy with this width."""
        later = [lease.beyond(max(mark, lease.after)) for lease in self._trained(worker) if lease.end > mark]
        as_they_are = max((lease.end for lease in later), default=mark) - mark
        return max(as_they_are, sum(-(-(lease.stop - lease.start) // width) for lease in later))

    def lacking(self, members: Collection[str]) -> int:
        """Rows that the chief's server has, and that are free, or in the newest lease of a member: others lack them."""
        newest: list[Lease | Free] = [self._ways[worker][-1] for worker in members if self._ways.get(worker)]
        pieces = [piece for piece in newest + self._free if 0 in piece.has]
        return sum(piece.stop - piece.start for piece in pieces)

    def release(self, worker: str, marks: Sequence[int]) -> int:
        """The worker has left; returns how many rows are free because of that. `marks`: its clock on every server's slice,
        which is final unless one goes back to a snapshot: what these lack of its way is free. If it comes back, it sends them
        nothing for its clocks that some slices have."""
        everywhere, high = set(range(len(marks))), max(marks)
        self._asked[worker] = max(high, self._asked.get(worker, 0))
        kept, free = list[Lease](), list[Free]()
        for piece in (piece for lease in self._ways.get(worker, ()) for piece in lease.pieces(marks)):
            lacking = {server for server in everywhere - {*piece.has} if marks[server] < piece.end}
            if lacking and piece.stream != NOTHING:
                free.append(Free(piece.start, piece.stream, piece.stop, tuple(sorted(everywhere - lacking))))
            if piece.end <= high:
                kept.append(piece._replace(has=tuple(sorted(lacking | {*piece.has}))))
        if free:
            self._ways[worker] = _joined(kept)
            self._free = sorted(self._free + free)
            self.number += 1
        return sum(piece.stop - piece.start for piece in free)

    def _new(self, wish: Wish, lived_in: Collection[int], is_level: bool) -> Lease | None:
        """Rows that are left: those of its stream, unless others are behind by more than a lease. None where none are."""
        is_even = is_level and len(lived_in) == len(self._next) and not self._free
        most = self._most(wish, len(lived_in), is_even)
        own = self._next[wish.place] if wish.place < len(self._next) else self.end
        is_done = own >= self.end
        if self._free and (is_done or self._free[0].start <= own):
            return self._take_free(wish, most)
        behind = [
            (row, stream)
            for stream, row in enumerate(self._next)
            if row < self.end and (is_done or row + most <= own) and not (is_level and stream in lived_in)
        ]
        row, stream = min(behind, default=(own, wish.place))
        if row >= self.end:
            return None
        stop = self._next[stream] = min(row + most, self.end)
        return Lease(wish.after, stream, row, stop, wish.width)

    def _most(self, wish: Wish, members: int, is_even: bool) -> int:
        """Rows of a new lease: at most a part of what is left, so that all come to the end together (guided self-scheduling).
        `is_even`: each has its own stream, and all come to its end together anyway."""
        part = wish.most if is_even else -(-self.untrained // (2 * max(1, members)))
        return max(1, min(wish.most, part) // wish.width) * wish.width

    def _trained(self, worker: str) -> list[Lease]:
        """Its leases with rows of the epochs, up to where these end."""
        leases = (lease for lease in self._ways.get(worker, ()) if lease.stream != NOTHING and lease.start < self.end)
        return [lease._replace(stop=min(lease.stop, self.end)) for lease in leases]

    def _take_free(self, wish: Wish, most: int) -> Lease:
        free = self._free.pop(0)
        stop = min(free.stop, free.start + most)
        if stop < free.stop:
            self._free.insert(0, free._replace(start=stop))
        return Lease(wish.after, free.stream, free.start, stop, wish.width, free.has)

    def _beyond(self, wish: Wish, marks: Mapping[str, int], is_exact: bool) -> Lease:
        """Nothing is left: nothing to compute while others still do; then rows from `end` on, for examples that were not
        learned from."""
        others = {worker: mark for worker, mark in marks.items() if worker != wish.worker}
        if is_exact or self.untrained or any(self._held(worker, mark, wish.width) for worker, mark in others.items()):
            return Lease(wish.after, NOTHING, 0, 1)
        stream = wish.place % len(self._next)
        row = max(self._next[stream], self.end)
        self._next[stream] = row + wish.width
        return Lease(wish.after, stream, row, row + wish.width, wish.width)

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {
            "end": self.end,
            "next": list(self._next),
            "free": list(self._free),
            "ways": dict(self._ways),
            "asked": dict(self._asked),
            "number": self.number,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continues from `state`."""
        self.end = state["end"]
        self._next = list(state["next"])
        self.number = state["number"]
        self._asked = dict(state["asked"])
        self._free = [Free(start, stream, stop, tuple(has)) for start, stream, stop, has in state["free"]]
        self._ways = {
            worker: [Lease(*facts)._replace(has=tuple(facts[-1])) for facts in way]
            for worker, way in state["ways"].items()
        }


def _at(way: Sequence[Lease], after: int) -> Lease | None:
    """The lease that has the clock after this one."""
    return next((lease for lease in reversed(way) if lease.after <= after < lease.end), None)


def _joined(way: Iterable[Lease]) -> list[Lease]:
    """The leases in order of their clocks, those that belong together as one."""
    found: list[Lease] = []
    for lease in sorted(way):
        if found and found[-1].precedes(lease):
            found[-1] = found[-1]._replace(stop=lease.stop)
        else:
            found.append(lease)
    return found


def with_all_servers_alike(state: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what `Leases.state` gave, for other servers, which all have the same rows."""
    if not state:
        return {}
    ways = {worker: [[*facts[:-1], ()] for facts in way] for worker, way in state["ways"].items()}
    return {**state, "ways": ways, "free": [[*facts[:-1], ()] for facts in state["free"]]}
