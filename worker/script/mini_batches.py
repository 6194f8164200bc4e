"""The mini-batches of a script's worker: where the next ones come from, which the script has, and which are done."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from paceline.core.chief.leases import NOTHING
from paceline.core.values import Position
from paceline.data.dataset import Rows
from paceline.data.shards import take
from paceline.worker.script.course import BatchesDone, PresentEpoch
from paceline.worker.training.way import Streams, Way


class Stepped(NamedTuple):
    """What a step was on."""

    examples: int
    loaded: float
    """Time that its mini-batches took to come out of the loader (seconds)."""
    position: Position


class At(NamedTuple):
    """Where a mini-batch is."""

    stream: int
    row: int
    has: tuple[int, ...]
    """Servers that have it already."""


class MiniBatches:
    """Not thread-safe; it gets its seat while the script waits."""

    def __init__(self) -> None:
        self.present = PresentEpoch()
        self.counts = BatchesDone()
        self._counted = 0
        """Those whose examples have been counted."""
        self._loaded = 0.0
        """Time that the next step's took to come out of the loader (seconds)."""
        self._streams: Streams | None = None
        self._way: Way | None = None
        self.is_short = False
        """A pass was ended before its time, since no mini-batch was left."""

    def sit(self, position: int, streams: Streams, way: Way) -> None:
        """The worker has its seat: the mini-batches that are done, and where the next ones come from."""
        self.counts, self._counted = BatchesDone(position), position
        self._streams, self._way = streams, way

    def rows(self, position: int) -> Rows | None:
        """The data set's rows that make this worker's mini-batch at this position, from 1; None where nothing is left."""
        assert self._streams is not None
        at = self.at(position)
        if at.stream == NOTHING:
            return None
        shards, batch = self._streams.batch(at.stream, at.row)
        found: Rows = take(shards, *batch)[0]
        return found

    def at(self, position: int) -> At:
        """Which mini-batch of which stream this worker computes at this position, from 1."""
        assert self._way is not None
        lease = self._way.lease(position - 1, 1)
        return At(lease.stream, lease.rows(position).start, lease.has)

    def epoch(self, ends: Callable[[int], bool], is_over: Callable[[], bool]) -> Iterator[int]:
        """Positions of an epoch's mini-batches, from the next one on: to where it `ends`, which is asked from the end of the
        worker's own ones on, or until the run is over or nothing is left for the time being."""
        assert self._streams is not None
        position = self.counts.done
        self.present.begin(position, self._streams.steps)
        self.counts.begin()
        while not is_over():
            position += 1
            found = self.rows(position)
            if found is None and position > self.counts.done:  # others have been passed by
                self.is_short = True
                return
            if found is not None and len(found):
                yield position
            if position >= self.present.end and ends(position):
                return

    def is_left(self, position: int) -> bool:
        """Whether this worker's last pass goes on after this position, with what others have left undone."""
        assert self._way is not None
        return self._way.is_leased and self.at(position + 1).stream != NOTHING

    def upcoming(self) -> At:
        """The mini-batch that the script computes next, as far as can be known before it has come to it."""
        return self.at(self.counts.done + 1)

    def pass_by(self) -> None:
        """The upcoming mini-batch has no rows, and is done without the script."""
        self.counts.done += 1

    def drew(self, position: int, seconds: float) -> None:
        """The script gets the mini-batch at this position, or a part of it, which took this long to load (seconds)."""
        self._loaded += seconds
        self.counts.draw(position)
        self.present.drew()

    def count_step(self, finite: bool) -> None:
        """The script steps; not `finite`: without a use. ConfigError where the mini-batches for it have not come."""
        if finite:
            self.present.step()
        self.counts.step()

    def stepped(self) -> Stepped:
        """What the newest step is on, which counts once. Mini-batches that have no rows here are passed by."""
        while not (examples := self._examples(self.counts.drawn or self.counts.done)):
            self.counts.done += 1
        new = range(self._counted + 1, self.counts.done + 1)
        self._counted = self.counts.done
        loaded, self._loaded = self._loaded, 0.0
        return Stepped(examples, loaded, Position(self.counts.done, sum(map(self._examples, new))))

    def _examples(self, position: int) -> int:
        assert self._streams is not None
        at = self.at(position)
        return self._streams.examples(at.stream, at.row)
