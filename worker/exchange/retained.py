"""The pushes of one worker to one slice that the server could still lose: kept, encoded, until a snapshot on disk has them."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paceline.v1 import parameter_service_pb2 as pb

Room = npt.NDArray[np.uint8]
Pieces = Sequence[tuple[int, memoryview]]
"""Parts that may be read more than once."""
_NO_ROOM: Room = np.empty(0, np.uint8)
_FULL = 0.75
"""Share of a room that a push must fill to be kept there."""


@dataclass(frozen=True, slots=True, eq=False)
class RetainedPush:
    """A push as it was sent."""

    message: pb.PushHead | pb.PushPullSparseRequest
    """The head of a dense push, or the whole of a sparse one."""
    parts: Pieces
    """Of a dense push, in `room`."""
    room: Room
    size: int
    """Bytes that count towards the cap."""

    @property
    def head(self) -> pb.PushHead:
        return self.message.head if isinstance(self.message, pb.PushPullSparseRequest) else self.message

    @property
    def clock(self) -> int:
        return int(self.head.clock)


class Sending:
    """The parts of a push, for each attempt to send them. Those that lie elsewhere than where they are kept are copied by
    another thread once the last one is under way: the server then folds, and this worker waits."""

    def __init__(self, parts: Pieces, encoded: Room | None, room: Room | None, copier: Executor) -> None:
        """`encoded`: where the parts lie; None: in the caller's memory. `room`: where they are kept; None: nowhere."""
        self.encoded = encoded
        self.room = room
        self.size = sum(len(data) for _, data in parts)
        """Bytes of all parts."""
        self._parts = parts
        self._copier = copier
        self._copy: Future[Pieces] | None = None

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        yield from self._parts
        if self.room is not None and self.room is not self.encoded and self._copy is None:
            with suppress(RuntimeError):  # no thread is free, or the process is ending: `kept` copies
                self._copy = self._copier.submit(_copied, self._parts, self.room)

    def own_copy(self) -> Pieces:
        """The parts in their `room`; the caller's memory is then its own again."""
        if self.room is None or self.room is self.encoded:
            return self._parts
        return _copied(self._parts, self.room) if self._copy is None else self._copy.result()


def _dropped(head: pb.PushHead) -> pb.PushHead:
    """The head that stands for a push which the server has dropped."""
    found = pb.PushHead()
    found.CopyFrom(head)
    found.elements, found.dropped = 0, True
    del found.rates[:], found.untouched[:], found.options[:]
    return found


def _copied(parts: Pieces, room: Room) -> Pieces:
    """Copies without Python's lock, which a memoryview would hold."""
    found, first = [], 0
    for start, data in parts:
        place = room[first : first + len(data)]
        np.copyto(place, np.frombuffer(data, np.uint8))
        found.append((start, place.data))
        first += len(data)
    return found


class Retained:
    """A queue by clock, without gaps. Beyond its cap it forgets the oldest push first, which must then be computed again.
    Not thread-safe, but for `room` and `sending`, which a pushing thread may call at any time."""

    def __init__(self, cap: int) -> None:
        """`cap`: bytes."""
        self._cap = cap
        self._pushes: deque[RetainedPush] = deque()
        self._bytes = 0
        self._free: list[Room] = []
        """Rooms of `_size` bytes that no push needs any more: fresh memory would cost a fault for each page. With those that
        are kept never more than the cap and the push under way."""
        self._size = 0
        self._copier = ThreadPoolExecutor(1, thread_name_prefix="retain")

    def room(self, size: int) -> Room:
        """Where to encode a push of at most `size` bytes: it is kept there."""
        if size != self._size:
            self._size = size
            self._free = []
        return self._free.pop() if self._free else np.empty(size, np.uint8)

    def sending(self, parts: Pieces, encoded: Room | None) -> Sending:
        """What to send, and then to `end`. `encoded`: the room that the parts lie in; None: they lie in the caller's memory,
        which must not change before the end."""
        size, room = sum(len(data) for _, data in parts), encoded
        if size < _FULL * (0 if encoded is None else len(encoded)) or not size:
            room = np.empty(size, np.uint8)
        elif encoded is None and self._fits(size):
            room = self.room(size)
        return Sending(parts, encoded, room, self._copier)

    def end(self, head: pb.PushHead, sending: Sending, is_kept: bool, is_dropped: bool = False) -> None:
        """Of a dense push that is answered: keeps it where the server could lose it. `is_dropped`: the server did not take it,
        but would where it is sent again, so its head alone stands for it."""
        room = sending.room
        if is_kept and is_dropped:
            self._append(RetainedPush(_dropped(head), [], _NO_ROOM, 0))
        elif is_kept and room is not None and self._makes_place(len(room)):
            self._append(RetainedPush(head, sending.own_copy(), room, len(room)))
            if room is sending.encoded:
                return
        self._leave(sending.encoded)

    def add_sparse(self, message: pb.PushPullSparseRequest, is_dropped: bool) -> None:
        """Keeps a sparse push, or what stands for it; when it is sent again it wants no weights."""
        if is_dropped:
            message = pb.PushPullSparseRequest(head=_dropped(message.head))
        message.wanted = b""
        size = message.ByteSize()
        if self._makes_place(size):
            self._append(RetainedPush(message, [], _NO_ROOM, size))

    def forget(self, durable: int) -> None:
        """Forgets the pushes up to this clock."""
        while self._pushes and self._pushes[0].clock <= durable:
            self._drop()

    def clear(self) -> None:
        """Forgets all: what follows goes on after another clock. The rooms are not used again, as they may be on their way
        in an exchange that is abandoned."""
        self._pushes.clear()
        self._bytes = 0

    def since(self, clock: int, newest: int) -> Iterable[RetainedPush] | None:
        """The pushes after this clock up to the `newest`, in order; None where one of them is not kept any more."""
        if clock >= newest:
            return ()
        found = [push for push in self._pushes if clock < push.clock <= newest]
        return found if len(found) == newest - clock else None

    @property
    def bytes(self) -> int:
        """Kept at present."""
        return self._bytes

    def __iter__(self) -> Iterator[RetainedPush]:
        return iter(self._pushes)

    def _append(self, push: RetainedPush) -> None:
        if self._pushes and push.clock != self._pushes[-1].clock + 1:
            self.clear()
        self._pushes.append(push)
        self._bytes += push.size

    def _makes_place(self, size: int) -> bool:
        """Whether a push of this size can be kept; the oldest ones go for it."""
        while self._pushes and self._bytes + size > self._cap:
            self._drop()
        return self._fits(size)

    def _fits(self, size: int) -> bool:
        return size <= self._cap

    def _drop(self) -> None:
        push = self._pushes.popleft()
        self._bytes -= push.size
        self._leave(push.room)

    def _leave(self, room: Room | None) -> None:
        """To a later push."""
        if room is not None and len(room) and len(room) == self._size:
            self._free.append(room)
