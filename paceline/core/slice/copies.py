"""Copies arrays for a snapshot while they go on changing: a block at a time, so that nobody waits for the whole."""

from collections import deque
from collections.abc import Mapping

import numpy as np

from paceline.core.values import Vector

_BLOCK = 1 << 20
"""Values that are copied at a time: 4 MiB, about a millisecond."""


class Copies:
    """Arrays as they were at one moment. Call `finish` before you change one of them. Not thread-safe."""

    def __init__(self, sources: Mapping[str, Vector], spare: list[Vector]) -> None:
        """`spare`: arrays to copy to. Used ones are taken out of it; more are allocated if it has too few."""
        self.made: dict[str, Vector] = {}
        """By their names; they are whole once `is_done`."""
        self._blocks: deque[tuple[Vector, Vector]] = deque()
        for name, source in sources.items():
            place = next((index for index, array in enumerate(spare) if array.shape == source.shape), None)
            target = np.empty_like(source) if place is None else spare.pop(place)
            self.made[name] = target
            for start in range(0, len(source), _BLOCK):
                self._blocks.append((target[start : start + _BLOCK], source[start : start + _BLOCK]))

    @property
    def is_done(self) -> bool:
        return not self._blocks

    def advance(self) -> None:
        """Copies the next block."""
        if self._blocks:
            np.copyto(*self._blocks.popleft())

    def finish(self) -> None:
        """Copies all that is left."""
        while self._blocks:
            self.advance()


NO_COPIES = Copies({}, [])
"""Of a slice of which no snapshot is being taken."""
