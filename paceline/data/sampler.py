"""Which examples a worker takes at which clock: a pure function, so a worker that restarts goes on where it was."""

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Rows


class Position(NamedTuple):
    """A worker's position in its data: passes begun before this step, and steps made in this one, both from 0."""

    epoch: int
    offset: int


class Batch(NamedTuple):
    """Where the examples of one mini-batch lie: the number of the shard (among the worker's own) and the row in it."""

    shards: Rows
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)


def steps_per_epoch(sizes: Sequence[int], owned: Iterable[Sequence[int]], batch_size: int) -> int:
    """Steps that one pass takes, the same for every worker: as many as the worker with the most examples needs.
    `sizes`: examples that an epoch takes from each shard; `owned`: for each worker, the numbers of its shards."""
    if batch_size < 1:
        raise ConfigError(f"batch_size is {batch_size}; expected 1 or more.")
    most = max((sum(sizes[shard] for shard in shards) for shards in owned), default=0)
    if most < 1:
        raise DataError("No worker has any examples: give every worker a shard.")
    return -(-most // batch_size)


def proportions(count: int, weights: Sequence[float]) -> list[int]:
    """`count` in whole numbers that are in proportion to the weights, each less than one off (largest remainders; of
    equal ones the first)."""
    shares = count * (np.asarray(weights, np.float64) / np.sum(weights))
    whole = np.floor(shares).astype(np.int64)
    first = np.argsort(whole - shares, kind="stable")[: count - int(whole.sum())]
    whole[first] += 1
    return [int(number) for number in whole]


def lens_of_epoch(shards: Sequence[Rows], weights: Sequence[float]) -> tuple[list[int], Rows, int]:
    """Examples that one epoch takes from each shard; the examples that are in several of them; how many there are, each
    counted once. `shards`: the ids in each; `weights`: their sizes in proportion, empty: all equal. Duplicates don't lengthen
    the epoch."""
    ids, holders = np.unique(np.concatenate(shards), return_counts=True)
    twice = ids[holders > 1]
    sizes = [len(one) for one in shards]
    lens = proportions(len(ids), weights or (1,) * len(shards)) if len(twice) else sizes
    return list(map(min, lens, sizes)), twice, len(ids)


def starts_of(sizes: Sequence[int]) -> Rows:
    """Where each shard begins when they lie end to end, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def locate(starts: Rows, positions: Rows) -> Batch:
    """Positions in shards laid end to end (see `starts_of`) as (shard, row) pairs."""
    shards = np.searchsorted(starts, positions, side="right") - 1
    return Batch(shards, positions - starts[shards])


class Sampler:
    """One worker's mini-batches. Each epoch is a fresh seeded permutation of all its examples, cut into
    `steps_per_epoch` nearly equal batches: every example comes once per epoch, no batch is above `batch_size`;
    some are empty where a worker has fewer examples than steps. With a `length` below the examples, an epoch is this many
    of the permutation. Without `shuffle` the examples keep their order; with `fills` each batch has `batch_size` before the
    next one begins, as torch's BatchSampler cuts. Keeps the last epoch's permutation. Not thread-safe."""

    def __init__(
        self,
        sizes: Sequence[int],
        batch_size: int,
        steps_per_epoch: int,
        seed: int,
        worker: str,
        length: int | None = None,
        *,
        shuffle: bool = True,
        fills: bool = False,
    ) -> None:
        """`sizes`: examples in each of the worker's shards; `length`: examples of an epoch (default: all). ConfigError
        where they don't fit into the steps."""
        self._length = sum(sizes) if length is None else min(length, sum(sizes))
        if self._length < 1:
            raise DataError(f"{worker} has no examples: give it a shard.")
        if self._length > batch_size * steps_per_epoch:
            raise ConfigError(
                f"{worker} has {self._length:,} examples, but {steps_per_epoch:,} steps of {batch_size} reach "
                f"only {batch_size * steps_per_epoch:,}. Call steps_per_epoch with the shards of all workers."
            )
        self._starts = starts_of(sizes)
        self.steps = steps_per_epoch
        self._shuffle = shuffle
        self._cuts = batch_size * np.arange(1, steps_per_epoch) if fills else steps_per_epoch
        self._seed = [seed, zlib.crc32(worker.encode())]
        self._epoch = -1
        self._batches: list[Rows] = []

    def position(self, clock: int) -> Position:
        """Where the step that makes the worker's clock `clock` (from 1) stands."""
        if clock < 1:
            raise DataError(f"No step leads to clock {clock}; expected 1 or more.")
        return Position(*divmod(clock - 1, self.steps))

    def is_end(self, clock: int) -> bool:
        """Whether an epoch ends with that step."""
        return self.position(clock).offset == self.steps - 1

    def indices(self, clock: int) -> Rows:
        """The examples of that step, as positions in the worker's shards laid end to end."""
        epoch, offset = self.position(clock)
        if epoch != self._epoch:
            count = self._starts[-1]
            rng = np.random.default_rng([*self._seed, epoch])
            order = rng.permutation(count) if self._shuffle else np.arange(count, dtype=np.int64)
            self._epoch = epoch
            self._batches = np.array_split(order[: self._length], self._cuts)
        return self._batches[offset]

    def batch(self, clock: int) -> Batch:
        """The same examples as (shard, row) pairs."""
        return locate(self._starts, self.indices(clock))
