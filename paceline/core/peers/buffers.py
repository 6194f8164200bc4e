"""Vectors that are used again and again: fresh memory costs a page fault for every few kilobytes."""

from weakref import ref

import numpy as np

from paceline.core.values import Vector


class Buffers:
    """Vectors of one length. One of which a lent view is still held by anybody is not given out again. Not thread-safe."""

    def __init__(self) -> None:
        self._idle: list[Vector] = []
        self._lent: list[ref[Vector]] = []

    def take(self, like: Vector) -> Vector:
        """One with any values in it."""
        self._lent = [lent for lent in self._lent if lent() is not None]
        held = [view.base for lent in self._lent if (view := lent()) is not None]
        for place, buffer in enumerate(self._idle):
            if not any(buffer is base for base in held):
                return self._idle.pop(place)
        return np.empty_like(like)

    def give_back(self, *buffers: Vector) -> None:
        """They are used no more, but for what is lent of them."""
        self._idle += [buffer for buffer in buffers if buffer.base is None]

    def lend(self, view: Vector) -> Vector:
        """A view of one, for somebody who may hold it for any time; this very object."""
        self._lent.append(ref(view))
        return view
