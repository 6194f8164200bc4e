"""The arrays that pushes are put together in: a fixed number, so that a server's memory is bounded whoever pushes."""

from collections.abc import Callable

import numpy as np

from paceline.core.values import Vector


class AssemblyBuffers:
    """A small pool of slice-sized arrays. In rounds the last free one is kept for the next worker in order, since
    the sum waits for it; others may have it while that worker's push is on its way in.
    Guarded by the slice driver's lock."""

    def __init__(self, length: int, count: int) -> None:
        self._length = length
        self._unmade = count
        self._free: list[Vector] = []
        self._filling: list[str] = []
        """Workers whose push is being put together."""
        self._handed: dict[str, Vector] = {}

    def take(self, worker: str, next_in_order: str | None) -> Vector | None:
        """An array for the worker's push; None while it has to wait. Ends with `give_back` or `hand`."""
        left = len(self._free) + self._unmade
        if left == 0 or (left == 1 and next_in_order not in (None, worker, *self._filling)):
            return None
        self._filling.append(worker)
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        return np.empty(self._length, np.float32)

    def give_back(self, worker: str, values: Vector) -> None:
        """The push is given up, the array is free again."""
        self._filling.remove(worker)
        self._free.append(values)

    def hand(self, worker: str, values: Vector) -> None:
        """The slice has the push and may keep the array for a while; of a repeat it keeps nothing."""
        self._filling.remove(worker)
        if worker in self._handed:
            self._free.append(values)
        else:
            self._handed[worker] = values

    def reclaim(self, is_needed: Callable[[str], bool]) -> None:
        """Takes back what the slice does not need any more."""
        for worker in [worker for worker in self._handed if not is_needed(worker)]:
            self._free.append(self._handed.pop(worker))
