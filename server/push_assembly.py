"""How a push is assembled: its parts must cover an array in order, without gaps, with finite values. The arrays are a fixed
number, so that a server's memory is bounded."""

import time
from collections.abc import Callable

import numpy as np

from paceline.core import kernels
from paceline.core.codecs.codec import Codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush
from paceline.core.values import Vector

_LONG, _SLOWER = 1.0, 4.0
"""A push that takes longer than this to come (seconds), and this many times as long as the quickest worker's, is slow."""


class Assembly:
    """Writes a worker's parts to their places. BadPush for a part that does not fit. Not thread-safe."""

    def __init__(self, worker: str, values: Vector, codec: Codec | SliceCodec) -> None:
        self.values = values
        self._worker = worker
        self._codec = codec
        self._filled = 0
        self._placed: memoryview | None = None

    def place(self, offset: int, length: int) -> memoryview | None:
        """The place of the next part, if it is not coded."""
        is_whole = self._codec.at(offset).lossless and length % 4 == 0
        self._placed = self._next(offset, length, length // 4).data.cast("B") if is_whole else None
        return self._placed

    def take(self, offset: int, data: memoryview) -> None:
        """Decodes one part to its place."""
        codec = self._codec.at(offset)
        values = self._next(offset, len(data), codec.elements_in(data))
        if data is not self._placed:
            codec.decode(data, values)
        if not kernels.all_finite(values):
            raise BadPush(f"{self._worker} pushed NaN or infinity near element {offset:,}. Nothing was changed.")
        self._filled += len(values)

    def _next(self, offset: int, length: int, count: int) -> Vector:
        if offset != self._filled or offset + count > len(self.values):
            raise BadPush(
                f"{self._worker} sent {length} bytes for element {offset:,} of {len(self.values):,}; expected whole "
                f"elements, at most {len(self.values) - self._filled:,}, from {self._filled:,} on. Nothing was changed."
            )
        return self.values[offset : offset + count]

    def check_complete(self) -> None:
        """Raises BadPush if parts are missing at the end."""
        if self._filled != len(self.values):
            raise BadPush(f"{self._worker} sent {self._filled:,} of {len(self.values):,} values. Nothing was changed.")


class AssemblyBuffers:
    """A pool of slice-sized arrays; the system gives memory for the pages of one as they are written. With rounds, the last
    free one is kept for the next worker in order, since the sum waits for it; others may take it while that worker's push is
    coming in. Without rounds it is kept for workers whose pushes come quickly, so that slow lines hold up nobody else.
    Guarded by the slice driver's lock."""

    def __init__(self, length: int, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = length
        self._count = self._unmade = count
        self._clock = clock
        self._began: dict[str, float] = {}
        """When each worker's present push began."""
        self._took: dict[str, float] = {}
        """For how long each worker's last push had an array while it came (seconds)."""
        self._free: list[Vector] = []
        self._filling: list[str] = []
        """Workers whose push is being assembled."""
        self._handed: dict[str, Vector] = {}

    def take(self, worker: str, next_in_order: str | None) -> Vector | None:
        """An array for the worker's push; None while the worker has to wait. End its use with `give_back` or `hand`."""
        left = len(self._free) + self._unmade
        if left == 0 or (left == 1 and next_in_order not in (None, worker, *self._filling)):
            return None
        if left == 1 and self._count > 1 and next_in_order is None and self._is_slow(worker):
            return None
        self._filling.append(worker)
        self._began[worker] = self._clock()
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        return np.empty(self._length, np.float32)

    def give_back(self, worker: str, values: Vector) -> None:
        """Frees the array of a push that was given up."""
        self._ended(worker)
        self._free.append(values)

    def hand(self, worker: str, values: Vector) -> None:
        """Hands the push to the slice, which may keep the array for a while; it keeps none for a repeat."""
        self._ended(worker)
        if worker in self._handed:
            self._free.append(values)
        else:
            self._handed[worker] = values

    def _ended(self, worker: str) -> None:
        self._filling.remove(worker)
        self._took[worker] = self._clock() - self._began[worker]

    def _is_slow(self, worker: str) -> bool:
        """Whether the worker's last push took much longer than the quickest worker's; unknown ones are quick."""
        took = self._took.get(worker, 0.0)
        return took > max(_LONG, _SLOWER * min(self._took.values(), default=0.0))

    def reclaim(self, is_needed: Callable[[str], bool]) -> None:
        """Takes back the arrays that the slice no longer needs."""
        for worker in [worker for worker in self._handed if not is_needed(worker)]:
            self._free.append(self._handed.pop(worker))
