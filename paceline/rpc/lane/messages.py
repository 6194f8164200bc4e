"""gRPC's messages as they come out of DATA frames, however those are cut: five bytes of prefix, then a message. Of a large
part the few bytes of its fields are read, and the tensor bytes go straight to their place."""

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from paceline.core.errors import BadPush
from paceline.rpc.bounds import MOST_BYTES
from paceline.rpc.lane.traffic import Counts
from paceline.rpc.transport import Sink
from paceline.rpc.wire import Message, data_start, parse, part_start

PREFIX = 5
_FIELDS = 4096
"""Bytes in which a part's head and offset are found; a message that is smaller is read as a whole."""
_AT_ONCE = 64 << 10
"""Bytes that room is made for before they have come."""

Pieces = tuple[bytes, memoryview]
"""What goes before a part's data, and the data."""


class Source(Protocol):
    """Bytes that have come, or come now."""

    def exact(self, count: int) -> bytes: ...

    def into(self, place: memoryview) -> None: ...

    def skip(self, count: int) -> None: ...


class Held:
    """Bytes that were kept back until it was known where they go."""

    def __init__(self, data: bytearray) -> None:
        self._data = memoryview(data)
        self._at = 0

    def exact(self, count: int) -> bytes:
        self._at += count
        return bytes(self._data[self._at - count : self._at])

    def into(self, place: memoryview) -> None:
        self._at += len(place)
        place[:] = self._data[self._at - len(place) : self._at]

    def skip(self, count: int) -> None:
        self._at += count


class Messages:
    """Cuts a stream's bytes into messages and hands each on when it is whole. Nothing is allocated for bytes that have not
    come, but what `place` of a part gives."""

    def __init__(
        self, sink: Sink | None = None, counts: Counts | None = None, on_whole: Callable[[], None] = lambda: None
    ) -> None:
        """`sink`: where parts go, and messages are not kept; without it one is, in `whole`, until it is taken out.
        `on_whole`: called when it has come."""
        self._sink = sink
        self._counts = counts or Counts()
        self._on_whole = on_whole
        self.whole: list[bytes] = []
        self._small = bytearray()
        self._need = PREFIX
        """Bytes that `_small` must have before the next step."""
        self._left: int | None = None
        """Bytes of the present message that are not in `_small`; None: its prefix has not come."""
        self._body: memoryview | None = None
        self._scratch = bytearray()
        """Where a part lies that has no other place; used again for the next one."""
        self._filled = self._offset = 0
        self.unread = 0

    @property
    def is_between(self) -> bool:
        """Whether no message is half-way."""
        return self._left is None and not self._small

    def feed(self, source: Source, count: int) -> None:
        """`count` bytes more. BadPush, also from the sink; `unread` of the bytes are then not read."""
        self.unread = count
        while self.unread:
            if self._body is not None:
                some = min(self.unread, len(self._body) - self._filled)
                source.into(self._body[self._filled : self._filled + some])
                self._filled += some
                self.unread -= some
                if self._filled == len(self._body):
                    self._end_of_part()
                continue
            if self._sink is None and self._left and not self._small and self._left <= min(self.unread, _AT_ONCE):
                self.unread -= self._left
                self._keep(source.exact(self._left))
                continue
            some = min(self.unread, self._need - len(self._small), _AT_ONCE)
            self._small += source.exact(some)
            self.unread -= some
            if len(self._small) == self._need:
                self._step()

    def _step(self) -> None:
        if self._left is None:
            length = int.from_bytes(self._small[1:PREFIX], "big")
            if self._small[0] or length > MOST_BYTES:
                kind = "compressed" if self._small[0] else f"{length:,} bytes long; at most {MOST_BYTES:,} are taken"
                raise BadPush(f"A message is {kind}. Send it uncompressed, in smaller parts.")
            self._small.clear()
            self._left = length
            self._need = length if self._sink is None else min(length, _FIELDS)
            if not length:
                self._whole()
            return
        length = self._left
        if len(self._small) < length and self._sink is not None and self._need == _FIELDS:
            found = data_start(bytes(self._small), length)
            if found is not None:
                self._offset, start = found
                place = self._sink.buffer(self._offset, length - start)
                self._body = self._scratch_of(length - start) if place is None else place
                begun = self._small[start:]
                self._body[: len(begun)] = begun
                self._filled = len(begun)
                self._small.clear()
                return
        if len(self._small) < length:
            self._need = min(length, max(2 * self._need, _FIELDS))
            return
        self._whole()

    def _whole(self) -> None:
        message = bytes(self._small)
        self._small.clear()
        if self._sink is None:
            self._keep(message)
            return
        self._left = None
        self._need = PREFIX
        part: Message = parse(message)
        if len(part.data):
            self._counts.received_parts += 1
            self._sink.take(part.offset, part.data)

    def _keep(self, message: bytes) -> None:
        self._left = None
        self._need = PREFIX
        if self.whole:
            raise BadPush(
                "A message came before the answer to the last one. Send one message, and wait for its answer."
            )
        self.whole.append(message)
        self._on_whole()

    def _scratch_of(self, count: int) -> memoryview:
        if len(self._scratch) < count:
            self._scratch = bytearray(count)
        return memoryview(self._scratch)[:count]

    def _end_of_part(self) -> None:
        body = self._body
        self._body = None
        self._left = None
        self._need = PREFIX
        assert self._sink is not None
        assert body is not None
        self._counts.received_parts += 1
        self._sink.take(self._offset, body)


def prefixed(message: bytes) -> bytes:
    """A message that is not compressed."""
    return len(message).to_bytes(PREFIX, "big") + message


def cut(head: bytes, parts: Iterable[tuple[int, memoryview]]) -> Iterator[Pieces]:
    """The messages of a stream of parts; the head goes with the first one."""
    for offset, data in parts:
        start = part_start(head, offset, len(data))
        yield (len(start) + len(data)).to_bytes(PREFIX, "big") + start, data
        head = b""
    if head:
        yield prefixed(part_start(head, 0, 0)), memoryview(b"")
