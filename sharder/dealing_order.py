"""Whose turn it is when examples are dealt: round robin, or in proportion to the shards' weights."""

from collections.abc import Sequence

import numpy as np

from paceline.data.dataset import Rows
from paceline.data.sampler import proportions


class Turns:
    """Deals rows to shards. Equal weights: row i goes to shard i mod n. Others: each shard gets its proportion of the
    rows, spread evenly over them, so that any stretch of them (a class, a cluster) is in proportion as well."""

    def __init__(self, weights: Sequence[float]) -> None:
        """`weights`: the relative size of each shard, all above 0."""
        self._weights = weights

    @property
    def shards(self) -> int:
        """How many there are."""
        return len(self._weights)

    def deal(self, rows: Rows) -> list[Rows]:
        """The rows of each shard; totals are less than one off their proportion."""
        if len(set(self._weights)) == 1:
            return [rows[shard :: self.shards] for shard in range(self.shards)]
        sizes = proportions(len(rows), self._weights)
        order = np.argsort(_times(sizes), kind="stable")
        turns: Rows = np.repeat(np.arange(self.shards), sizes)[order]
        return np.split(rows[np.argsort(turns, kind="stable")], np.cumsum(sizes)[:-1])

    def deal_each(self, groups: Sequence[Rows], restart: bool = False) -> list[Rows]:
        """The rows of each shard, group after group; the counter goes on from one group to the next, or restarts at
        shard 0 for each as [Sharding] writes it."""
        if not restart:
            return self.deal(np.concatenate(groups))
        dealt = [self.deal(group) for group in groups]
        return [np.concatenate(parts) for parts in zip(*dealt, strict=True)]


def _times(sizes: Sequence[int]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """When each shard has its turns, from 0 to 1; shards don't begin all at once."""
    begins = (np.arange(len(sizes)) + 0.5) / len(sizes)
    parts = [(np.arange(size) + begin) / max(size, 1) for size, begin in zip(sizes, begins, strict=True)]
    return np.concatenate(parts)


def grouped(keys: Rows, rng: np.random.Generator | None) -> list[Rows]:
    """The rows of each key, keys rising; shuffled inside each, or in file order without a generator. `keys` (N,)."""
    order = np.arange(len(keys)) if rng is None else rng.permutation(len(keys))
    keys = keys - keys.min()
    if keys.max() < 1 << 16:
        keys = keys.astype(np.uint16)  # numpy sorts these by radix, ten times as fast
    by_key = order[np.argsort(keys[order], kind="stable")].astype(np.int64)
    cuts = np.flatnonzero(np.diff(keys[by_key])) + 1
    return np.split(by_key, cuts)
