"""Which mini-batches a worker computes at which clock, and where their examples are (paceline/core/chief/leases.py)."""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from paceline.core.chief.leases import NOTHING, Lease
from paceline.data.sampler import Batch, Sampler
from paceline.data.shards import Shard

_OPEN = 4
"""Streams of which a worker has the order of an epoch."""
_SECONDS = 2.0
"""How long a lease lasts a worker, if it can (seconds): what it still has when it leaves is late by that much."""
_HELD = 8
"""Leases that a worker keeps: of the clocks that it computes, and those that a loader has taken ahead."""


Ask = Callable[[int, int, int], Lease]
"""(clock, width, most) -> the lease that has the clock after it, in clocks of `width` rows, `most` in all."""


GiveBack = Callable[[int, int, int], None]
"""(clock, width, last): the worker leaves after its next clock, of which it computes `last` rows. Stopped where the chief does
not hear of it, so that it must not push them."""


class Stream(NamedTuple):
    """The mini-batches of one seat's shards."""

    sampler: Sampler
    shards: Sequence[Shard]


class Streams:
    """The mini-batches of all seats' shards, by row. Not thread-safe."""

    def __init__(self, opened: Callable[[int], Stream], steps: int) -> None:
        """`opened`: opens a stream by its number; `steps`: rows of an epoch."""
        self._opened = opened
        self.steps = steps
        self._streams: OrderedDict[int, Stream] = OrderedDict()

    def batch(self, stream: int, row: int) -> tuple[Sequence[Shard], Batch]:
        """The shards and the places in them of the examples of a row."""
        found = self._stream(stream)
        return found.shards, found.sampler.batch(row + 1)

    def examples(self, stream: int, row: int) -> int:
        """How many examples a row has."""
        return 0 if stream == NOTHING else len(self._stream(stream).sampler.indices(row + 1))

    def _stream(self, number: int) -> Stream:
        if number not in self._streams:
            self._streams[number] = self._opened(number)
        self._streams.move_to_end(number)
        if len(self._streams) > _OPEN:
            self._streams.popitem(last=False)
        return self._streams[number]


class Item(NamedTuple):
    """A mini-batch to compute."""

    stream: int
    row: int
    seed: tuple[int, int]
    """What its random draws follow from, besides the run's seed."""


class Items(NamedTuple):
    """The mini-batches of one clock."""

    items: Iterable[Item]
    has: tuple[int, ...] = ()
    """Servers that have them already."""


class Way:
    """The worker's leases. Not thread-safe."""

    def __init__(
        self, place: int, ask: Ask | None, end: int = sys.maxsize, give_back: GiveBack = lambda after, width, last: None
    ) -> None:
        """`ask`: asks the chief; None: the worker's stream is all its own, up to the row `end`."""
        self._place = place
        self._ask = ask
        self._end = end
        self.give_back = give_back
        self._held: list[Lease] = []
        self._since = 0.0
        """When the newest one was asked for."""
        self._newest = 0
        """Rows that it has brought."""

    @property
    def is_leased(self) -> bool:
        """Whether rows of other streams may come."""
        return self._ask is not None

    def lease(self, after: int, width: int) -> Lease:
        """The lease that has the clock after this one, of `width` rows."""
        if self._ask is None:
            return Lease(0, self._place, 0, self._end, width)
        for held in reversed(self._held):
            if held.after <= after < held.end and (held.width == width or held.stream == NOTHING):
                return held
        lease = self._ask(after, width, self._wanted(width))
        self._held = [*self._held, lease][-_HELD:]
        self._newest = 0 if lease.stream == NOTHING else lease.stop - lease.rows(after + 1).start
        return lease

    def _wanted(self, width: int) -> int:
        """Rows for some seconds, as quick as the newest ones were; at first those of a clock."""
        before, self._since = self._since, time.monotonic()
        return max(width, round(self._newest * _SECONDS / max(1e-6, self._since - before)))
