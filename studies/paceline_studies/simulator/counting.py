"""A slice without weights: folds that only make the next version, so that policies are asked what they are always asked."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from paceline.core.policies.clocks import Clocks
from paceline.core.slice.server_half import ServerHalf
from paceline.core.slice.state import SliceState
from paceline.core.values import Places, Published, Push, Sparse, Vector

NOTHING: Vector = np.empty(0, np.float32)


class CountingSum:
    """The pushes of one fold, counted. Not thread-safe."""

    changing: dict[str, Vector] = {}  # noqa: RUF012 - nothing changes it
    shares: dict[str, Sparse] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.contributors: dict[str, int] = {}
        self.pushes = 0
        self.examples = 0

    @property
    def open_examples(self) -> int:
        return self.examples

    def add(self, push: Push, weight: float) -> None:
        if push.examples:
            self.pushes += 1
            self.examples += push.examples

    def needs(self, worker: str) -> bool:
        return False

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Nothing waits for its turn."""

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        return None

    @property
    def facts(self) -> dict[str, Any]:
        return {"gathered": [self.pushes, self.examples]}

    def restore(self, state: SliceState) -> None:
        self.pushes, self.examples = state.table["gathered"]


class CountingFolding:
    """A `Folding` that has no weights. Not thread-safe."""

    changing: dict[str, Vector] = {}  # noqa: RUF012 - nothing changes it
    facts: dict[str, Any] = {}  # noqa: RUF012
    lacks = 0
    crowded = False

    def __init__(self, length: int, clocks: Clocks, half: ServerHalf) -> None:
        self._clocks = clocks
        self._half = half
        self._current = Published(0, NOTHING)
        self.begin()

    def take_back(self) -> None:
        """Nothing is pinned."""

    def begin(self) -> None:
        self.sum = CountingSum() if self._half.policy.has_sum else None

    def start(self, weights: Vector, version: int) -> None:
        self._current = Published(version, weights)

    def check_form(self, push: Push) -> None:
        """Any push will do."""

    def rates(self, lr: float, staleness: int, members: int) -> tuple[float, float]:
        return lr, lr

    def fold_one(self, push: Push, members: int, rate: float) -> None:
        if push.examples:
            self._fold()

    def close(self) -> None:
        assert self.sum is not None
        self.sum = CountingSum()
        self._fold()

    def _fold(self) -> None:
        self._clocks.version += 1
        self._current = Published(self._clocks.version, NOTHING)

    def pull(self, version: int | None, mean: bool) -> Published | None:
        """The one that is asked for; it has no values that it would have to keep."""
        return self._current if version is None else Published(version, NOTHING)

    def current(self) -> Published:
        return self._current

    def release(self, published: Published) -> None:
        """Nobody holds anything."""

    @property
    def oldest(self) -> int:
        return 0

    def answer(self, since: int | None, wanted: Places | None, also: Places, most: int) -> Sparse | None:
        return None

    def renumber(self) -> None:
        self._current = Published(self._clocks.version, NOTHING)

    def keep(self) -> Published:
        return self._current

    def supply(self, values: Vector) -> None:
        """It has no use for arrays."""

    def restore(self, state: SliceState) -> None:
        self.start(NOTHING, self._clocks.version)
