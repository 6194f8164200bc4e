"""The mini-batches of a script's worker: where the next ones come from, which the script has, and which are done."""

from collections.abc import Callable, Iterator
from copy import copy
from typing import Any, NamedTuple

from paceline.core.values import Position
from paceline.data.dataset import Rows
from paceline.data.sampler import Sampler
from paceline.data.shards import take
from paceline.worker.script.course import BatchesDone, PresentEpoch


class Stepped(NamedTuple):
    """What a step was on."""

    examples: int
    loaded: float
    """Time that its mini-batches took to come out of the loader (seconds)."""
    position: Position


class MiniBatches:
    """Not thread-safe; it gets its seat while the script waits."""

    def __init__(self) -> None:
        self.present = PresentEpoch()
        self.counts = BatchesDone()
        self._counted = 0
        """Those whose examples have been counted."""
        self._loaded = 0.0
        """Time that the next step's took to come out of the loader (seconds)."""
        self._sampler: Sampler | None = None
        """Of the steps; the loop has it, too."""
        self._ahead: Sampler | None = None
        """Of the loader, which may be an epoch ahead: each keeps one epoch's order."""
        self._shards: list[Any] = []

    def sit(self, position: int, sampler: Sampler, shards: list[Any]) -> None:
        """The worker has its seat: the mini-batches that are done, where the next ones come from, and the shards of these."""
        self.counts, self._counted = BatchesDone(position), position
        self._sampler = sampler
        self._ahead = copy(sampler)
        self._shards = shards

    def rows(self, position: int) -> Rows:
        """The data set's rows that make this worker's mini-batch at this position, from 1."""
        assert self._ahead is not None
        found: Rows = take(self._shards, *self._ahead.batch(position))[0]
        return found

    def epoch(self, ends: Callable[[], bool], is_over: Callable[[], bool]) -> Iterator[int]:
        """Positions of an epoch's mini-batches, from the next one on: to its end, or, if it has none, until the run is over."""
        assert self._ahead is not None
        position = self.counts.done
        self.present.begin(position, self._ahead.steps)
        self.counts.begin()
        while not is_over():
            position += 1
            if len(self.rows(position)):
                yield position
            if position == self.present.end and ends():
                return

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
        assert self._sampler is not None
        return len(self._sampler.indices(position))
