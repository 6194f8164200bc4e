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
from paceline.server.unfinished_pushes import UnfinishedPushes
from paceline.v1 import parameter_service_pb2 as pb

_LONG, _SLOWER = 1.0, 4.0
"""A push that takes longer than this to come (seconds), and this many times as long as the quickest worker's, is slow."""


class Assembly:
    """Writes a worker's parts to their places. BadPush for a part that does not fit. Not thread-safe."""

    def __init__(self, worker: str, values: Vector, codec: Codec | SliceCodec, filled: int = 0) -> None:
        """`filled`: elements that have come with an earlier attempt."""
        self.values = values
        self.filled = filled
        """Elements that have come, from the first one on."""
        self._worker = worker
        self._codec = codec
        self._placed: memoryview | None = None

    def buffer(self, offset: int, length: int) -> memoryview | None:
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
        self.filled += len(values)

    def _next(self, offset: int, length: int, count: int) -> Vector:
        if offset != self.filled or offset + count > len(self.values):
            raise BadPush(
                f"{self._worker} sent {length} bytes for element {offset:,} of {len(self.values):,}; expected whole "
                f"elements, at most {len(self.values) - self.filled:,}, from {self.filled:,} on. Nothing was changed."
            )
        return self.values[offset : offset + count]

    def check_complete(self) -> None:
        """Raises BadPush if parts are missing at the end."""
        if self.filled != len(self.values):
            raise BadPush(f"{self._worker} sent {self.filled:,} of {len(self.values):,} values. Nothing was changed.")


class AssemblyBuffers:
    """A pool of slice-sized arrays; the system gives memory for the pages of one as they are written. With rounds, the last
    free one is kept for the next worker in order, since the sum waits for it; others may take it while that worker's push is
    coming in. Without rounds it is kept for workers whose pushes come quickly, so that slow lines hold up nobody else. An array
    with what has come of a push that broke is as free as any other, and taken last. Guarded by the slice driver's lock."""

    def __init__(self, length: int, count: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._length = length
        self._count = self._unmade = count
        self._clock = clock
        self._began: dict[str, float] = {}
        """When each worker's present push began."""
        self._took: dict[str, float] = {}
        """For how long each worker's last push had an array while it came (seconds)."""
        self._free: list[Vector] = []
        self._filling: dict[int, pb.PushHead] = {}
        """The heads of the pushes that are being assembled, by the id of the array."""
        self._handed: dict[str, Vector] = {}
        self._unfinished = UnfinishedPushes()

    def take(self, head: pb.PushHead, next_in_order: str | None) -> Vector | None:
        """An array for the push, which has the elements before `head.start` (TryAgain: they are not kept); None while its
        worker has to wait. End its use with `give_back` or `hand`."""
        self._unfinished.check(head)
        worker, left = head.worker, len(self._free) + self._unmade + len(self._unfinished)
        filling = (other.worker for other in self._filling.values())
        if left == 0 or (left == 1 and next_in_order not in (None, worker, *filling)):
            return None
        if left == 1 and self._count > 1 and next_in_order is None and self._is_slow(worker):
            return None

        values = self._array(head)
        self._filling[id(values)] = head
        self._began[worker] = self._clock()
        return values

    def _array(self, head: pb.PushHead) -> Vector:
        """The worker's own, which has what came of its last push, where there is one."""
        if head.start or not (self._free or self._unmade):
            return self._unfinished.pop(head.worker)
        self.drop(lambda other: other.worker == head.worker)
        if self._free:
            return self._free.pop()
        self._unmade -= 1
        return np.empty(self._length, np.float32)

    def give_back(self, worker: str, values: Vector, filled: int = 0) -> None:
        """Frees the array of a push that was given up; `filled`: elements after which another attempt may go on."""
        head = self._ended(worker, values)
        is_only = all(other.worker != worker for other in self._filling.values())
        if filled and head.upload and is_only:
            self._unfinished.add(head, values, filled)
        else:
            self._free.append(values)

    def hand(self, worker: str, values: Vector) -> None:
        """Hands the push to the slice, which may keep the array for a while; it keeps none for a repeat."""
        self._ended(worker, values)
        if worker in self._handed:
            self._free.append(values)
        else:
            self._handed[worker] = values

    def arrived(self, worker: str, upload: int) -> int | None:
        """Elements that have come of an upload that broke off; None while an attempt to send it is under way."""
        if any(head.worker == worker and head.upload == upload for head in self._filling.values()):
            return None
        return self._unfinished.arrived(worker, upload)

    def drop(self, is_over: Callable[[pb.PushHead], bool]) -> None:
        """Forgets what has come of pushes that nobody will go on with."""
        self._free += self._unfinished.drop(is_over)

    def _ended(self, worker: str, values: Vector) -> pb.PushHead:
        self._took[worker] = self._clock() - self._began[worker]
        return self._filling.pop(id(values))

    def _is_slow(self, worker: str) -> bool:
        """Whether the worker's last push took much longer than the quickest worker's; unknown ones are quick."""
        took = self._took.get(worker, 0.0)
        return took > max(_LONG, _SLOWER * min(self._took.values(), default=0.0))

    def reclaim(self, is_needed: Callable[[str], bool]) -> None:
        """Takes back the arrays that the slice no longer needs."""
        for worker in [worker for worker in self._handed if not is_needed(worker)]:
            self._free.append(self._handed.pop(worker))
