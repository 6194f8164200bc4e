"""The arrays in which pushes are assembled: a fixed number, so that a server's memory is bounded."""

from collections.abc import Callable

import numpy as np

from paceline.core.values import Vector


class AssemblyBuffers:
    """A small pool of slice-sized arrays. With rounds, the last free one is kept for the next worker in order, since
    the sum waits for it; others may take it while that worker's push is coming in.
    Guarded by the slice driver's lock."""

    def __init__(self, length: int, count: int) -> None:
        self._length = length
        self._unmade = count
        self._free: list[Vector] = []
        self._filling: list[str] = []
        """Workers whose push is being assembled."""
        self._handed: dict[str, Vector] = {}

    def take(self, worker: str, next_in_order: str | None) -> Vector | None:
        """An array for the worker's push; None while the worker has to wait. End its use with `give_back` or `hand`."""
        left = len(self._free) + self._unmade
        if left == 0 or (left == 1 and next_in_order not in (None, worker, *self._filling)):
            return None
        self._filling.append(worker)
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        return np.empty(self._length, np.float32)

    def give_back(self, worker: str, values: Vector) -> None:
        """Frees the array of a push that was given up."""
        self._filling.remove(worker)
        self._free.append(values)

    def hand(self, worker: str, values: Vector) -> None:
        """Hands the push to the slice, which may keep the array for a while; it keeps none for a repeat."""
        self._filling.remove(worker)
        if worker in self._handed:
            self._free.append(values)
        else:
            self._handed[worker] = values

    def reclaim(self, is_needed: Callable[[str], bool]) -> None:
        """Takes back the arrays that the slice no longer needs."""
        for worker in [worker for worker in self._handed if not is_needed(worker)]:
            self._free.append(self._handed.pop(worker))
