"""The sum of the sparse pushes that fold together; in rounds added in worker order, so that the bits are always the same."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.core.linear.sparse import merged, overwritten, sparse_of
from paceline.core.slice.state import SliceState
from paceline.core.values import Empty, Push, Sparse, Vector, worker_order


class SparseSum:
    """The pushes of one fold, as `DenseSum` keeps dense ones. Ordered: at most one of each worker, summed in worker order.
    Unordered: a sum for each worker, where later values may replace earlier ones. Not thread-safe."""

    def __init__(self, length: int, ordered: bool, overwrites: bool) -> None:
        self._length = length
        self._ordered = ordered
        self._overwrites = overwrites
        self._sums: dict[str, Sparse] = {}
        self.contributors: dict[str, int] = {}
        """Ordered: workers whose push is not folded yet, and its examples."""
        self.pushes = 0
        self.examples = 0

    @property
    def open_examples(self) -> int:
        """Examples of the pushes that are not folded yet."""
        return self.examples

    def add(self, push: Push, weight: float) -> None:
        """Keeps the push until the fold."""
        if self._ordered:
            self.contributors[push.worker] = push.examples
        self.examples += push.examples
        if isinstance(push.update, Empty):
            return
        assert isinstance(push.update, Sparse)
        self.pushes += 1
        update = push.update
        if weight != 1:
            update = Sparse(update.places, update.values * np.float32(weight), self._length)
        before = self._sums.get(push.worker)
        if before is not None:
            update = overwritten(before, update) if self._overwrites else merged([before, update], self._length)
        self._sums[push.worker] = update

    def needs(self, worker: str) -> bool:
        """Keeps no array of the server."""
        return False

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Sums are made at the end."""

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """No worker has to be first."""
        return None

    def take(self) -> Sparse:
        """Returns the sum, in worker order, and clears it."""
        updates = [self._sums[worker] for worker in sorted(self._sums, key=worker_order)]
        self._sums = {}
        self.pushes = 0
        self.examples = 0
        self.contributors.clear()
        return merged(updates, self._length)

    # snapshots
    @property
    def changing(self) -> dict[str, Vector]:
        """Nothing: `add` replaces a worker's sum."""
        return {}

    @property
    def shares(self) -> dict[str, Sparse]:
        return dict(self._sums)

    @property
    def facts(self) -> dict[str, Any]:
        return {"gathered": [self.pushes, self.examples]}

    def restore(self, state: SliceState) -> None:
        """A snapshot of an older release does not say whose the values are."""
        self._sums = dict(state.shares) if state.gathered is None else {"": sparse_of(state.gathered)}
        self.pushes, self.examples, *_ = state.table["gathered"]
