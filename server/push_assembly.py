"""How a push is assembled: its parts must cover an array in order, without gaps, with finite values. The arrays are a fixed
number, so that a server's memory is bounded."""

from collections.abc import Callable

import numpy as np

from paceline.core import kernels
from paceline.core.codecs.codec import Codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush
from paceline.core.values import Vector


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
