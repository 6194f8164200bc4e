"""Keeps the published versions of a slice's weights: readers pin one while a fold writes the next to another array."""

import numpy as np

from paceline.core.values import Published, Vector

_ARRAYS = 3
"""Current weights, those that are given out or come next, and those of a snapshot."""


class Versions:
    """Current and, where a policy has rounds, previous weights. A pinned version never changes; its
    array is reused once no reader holds it. Not thread-safe."""

    def __init__(self, first: Vector, version: int, keep_previous: bool) -> None:
        self.current = Published(version, first)
        self.previous: Published | None = None
        self._keep_previous = keep_previous
        self._kept: Published | None = None
        """The version of the last snapshot."""
        self._old: list[Published] = []
        self._free: list[Vector] = []

    def target(self) -> Vector:
        """The array to write the next version to: the oldest kept one, if no reader holds it."""
        if not self._keep_previous and self.current.pins == 0:
            return self.current.values
        if self.previous is not None and self.previous.pins == 0:
            values = self.previous.values
            self.previous = None
            return values
        if not self._free:
            return np.empty_like(self.current.values)
        return self._free.pop()

    def publish(self, values: Vector, version: int) -> None:
        """Makes `values`, got from `target`, the current weights."""
        if values is self.current.values:
            self.current = Published(version, values)
            return
        retired = self.previous if self._keep_previous else self.current
        if self._keep_previous:
            self.previous = self.current
        self.current = Published(version, values)
        if retired is not None:
            self._retire(retired)

    def renew(self, version: int, keep_previous: bool) -> None:
        """Gives the current weights another number; older ones are no longer given out."""
        self.current.version = version
        self._keep_previous = keep_previous
        if self.previous is not None:
            self._retire(self.previous)
            self.previous = None

    def pin(self, version: int | None = None) -> Published | None:
        """The version asked for (default: the current one), to be given to `release`; None if it is not kept."""
        for known in (self.current, self.previous):
            if known is not None and version in (None, known.version):
                known.pins += 1
                return known
        return None

    def keep(self) -> Published:
        """The current version, pinned for a snapshot, which needs it longer than any reader, to be given to `release`. The
        memory formula counts an array for it."""
        self.current.pins += 1
        self._kept = self.current
        return self.current

    @property
    def lacks(self) -> int:
        """Arrays that folds may have to make while a snapshot is taken."""
        arrays = 1 + (self.previous is not None) + len(self._old) + len(self._free)
        return max(0, _ARRAYS - arrays)

    def supply(self, values: Vector) -> None:
        """Takes an array for a version to come."""
        self._free.append(values)

    def release(self, published: Published) -> None:
        """Ends one reader's hold on a version."""
        if published.is_lost:
            return
        published.pins -= 1
        if published.pins == 0 and published in self._old:
            self._old.remove(published)
            self._free.append(published.values)

    @property
    def oldest(self) -> int:
        """The oldest version that is still given out."""
        return self.current.version if self.previous is None else self.previous.version

    @property
    def crowded(self) -> bool:
        """Whether the next fold would need an array more than the memory formula counts: two, and one for a snapshot."""
        needs_one = self._keep_previous or self.current.pins > 0
        return needs_one and not self._free and any(old is not self._kept for old in self._old)

    def take_back(self) -> None:
        """Frees the array of the version that has been old for the longest time, but not of a snapshot's. Its readers find
        `is_lost`."""
        lost = next(old for old in self._old if old is not self._kept)
        lost.is_lost = True
        self._old.remove(lost)
        self._free.append(lost.values)

    def _retire(self, published: Published) -> None:
        if published.pins:
            self._old.append(published)
        else:
            self._free.append(published.values)
