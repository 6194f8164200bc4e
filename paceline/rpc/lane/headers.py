"""Header fields: HPACK's blocks in and out, and what makes the fields of a call malformed (RFC 9113, section 8). And what
frames without data may cost: floods of pings, settings, resets and empty frames end a connection."""

import threading
import time
from collections.abc import Iterable
from typing import TypeVar

import hpack
from hpack.exceptions import HPACKError, OversizedHeaderListError

from paceline.rpc.lane import frames
from paceline.rpc.lane.frames import Code, Kind, Violation
from paceline.rpc.lane.sockets import Reader

MOST = 16 << 10
"""Bytes of all header fields of a call, and of their block."""
_NOT_FOR_HTTP_2 = ("connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade")
FieldList = list[tuple[str, str]]
K = TypeVar("K")
V = TypeVar("V")
RESET = 5.0
"""What a stream that is reset costs."""
_MOST, _PER_SECOND, _PER_DATA = 1000.0, 200.0, 4.0
"""Frames that carry no data: how many at once, how many more each second, and with each frame of data."""
_MOST_BLOCKS = 16
"""Blocks that each side of a connection remembers; a run's calls have three or four."""


def _leaves_table(block: bytes) -> bool:
    """Whether a block only names fields of the table, a byte each (RFC 7541, 6.1): its meaning stays until another block
    changes the table."""
    return min(block, default=0) >= 0x80


class Encoder:
    """Makes blocks. It keeps count of them, so they must be sent in the order they are made in."""

    def __init__(self) -> None:
        self._hpack = hpack.Encoder()
        self._sizes = (frames.DEFAULT_TABLE, frames.DEFAULT_TABLE)
        """Smallest and last size of the peer's table since the last block."""
        self._lock = threading.Lock()
        self._blocks: dict[tuple[tuple[str, str], ...], bytes] = {}
        """Blocks that leave the table as it is, by their fields."""

    def resize(self, size: int) -> None:
        """The peer's table has another size."""
        size = min(size, frames.DEFAULT_TABLE)
        with self._lock:
            self._sizes = (min(self._sizes[0], size), size)

    def frames(self, number: int, fields: Iterable[tuple[str, str]], end: bool, most: int) -> list[bytes]:
        """HEADERS, and CONTINUATION where `most` bytes are not enough."""
        with self._lock:
            sizes = self._sizes
            self._sizes = self._sizes[1:] * 2
        block = self._block(tuple(fields), sizes)
        parts = [block[at : at + most] for at in range(0, len(block), most)] or [b""]
        made = []
        for at, part in enumerate(parts):
            flags = frames.END_HEADERS if at == len(parts) - 1 else 0
            if at:
                made.append(frames.frame(Kind.CONTINUATION, flags, number, part))
            else:
                made.append(frames.frame(Kind.HEADERS, flags | (frames.END_STREAM if end else 0), number, part))
        return made

    def _block(self, fields: tuple[tuple[str, str], ...], sizes: tuple[int, int]) -> bytes:
        if sizes[0] == sizes[1] == self._hpack.header_table_size and (made := self._blocks.get(fields)):
            return made
        for size in sizes:
            self._hpack.header_table_size = size
        block = self._hpack.encode(fields)
        _remember(self._blocks, fields, block, _leaves_table(block))
        return block


class Decoder:
    """Reads blocks, each once and in order."""

    def __init__(self) -> None:
        self._hpack = hpack.Decoder(max_header_list_size=MOST)
        self._hpack.max_allowed_table_size = frames.DEFAULT_TABLE
        self._blocks: dict[bytes, FieldList] = {}
        """Fields of blocks that leave the table as it is."""

    def fields(self, block: bytes) -> FieldList:
        """The fields of a block; it is at fault for the whole connection where it can't be read."""
        if known := self._blocks.get(block):
            return known
        try:
            fields = [(str(name), str(value)) for name, value in self._hpack.decode(block)]
        except OversizedHeaderListError as error:
            raise _too_large() from error
        except (HPACKError, UnicodeDecodeError) as error:
            raise Violation(Code.COMPRESSION_ERROR, f"Header fields that can't be read: {error}") from error
        _remember(self._blocks, block, fields, _leaves_table(block))
        return fields


def _remember(blocks: dict[K, V], key: K, value: V, leaves_table: bool) -> None:
    """Adds what a block says, or forgets all, where it has changed the table that the others refer to."""
    if not leaves_table or len(blocks) >= _MOST_BLOCKS:
        blocks.clear()
    if leaves_table:
        blocks[key] = value


class Calm:
    """One connection's allowance. `spend` is for its reader; `earn` for any thread."""

    def __init__(self) -> None:
        self._left = _MOST
        self._at = time.monotonic()

    def spend(self, cost: float = 1.0) -> None:
        """A frame that carries nothing has come. ENHANCE_YOUR_CALM where they are too many."""
        now = time.monotonic()
        self._left = min(_MOST, self._left + (now - self._at) * _PER_SECOND) - cost
        self._at = now
        if self._left < 0:
            raise Violation(Code.ENHANCE_YOUR_CALM, "Too many frames without data.")

    def earn(self) -> None:
        """A frame of data went out or came in."""
        self._left = min(_MOST, self._left + _PER_DATA)


def read_block(reader: Reader, length: int, flags: int, number: int, calm: Calm) -> bytes:
    """The block of a HEADERS frame and its CONTINUATION frames (section 6.10)."""
    payload = reader.exact(length)
    at = 1 if flags & frames.PADDED else 0
    if flags & frames.PRIORITY and int.from_bytes(payload[at : at + 4], "big") & frames.MOST_WINDOW == number:
        raise Violation(Code.PROTOCOL_ERROR, "A stream can't depend on itself.")
    block = frames.unpadded(payload, flags)
    while not flags & frames.END_HEADERS:
        length, kind, flags, same = frames.parse_header(reader.exact(frames.HEADER_BYTES))
        if kind != Kind.CONTINUATION or same != number:
            raise Violation(Code.PROTOCOL_ERROR, "A header block is not interrupted.")
        calm.spend()
        if len(block) + length > MOST:
            raise _too_large()
        block += reader.exact(length)
    return block


def check_fields(fields: FieldList, number: int, is_request: bool, is_trailers: bool = False) -> None:
    """Sections 8.2 and 8.3."""

    def refuse(text: str) -> Violation:
        return Violation(Code.PROTOCOL_ERROR, text, number)

    pseudo: dict[str, str] = {}
    is_regular = False
    for name, value in fields:
        if name != name.lower():
            raise refuse(f"The field {name!r} is not in lower case.")
        if name.startswith(":"):
            if is_regular or is_trailers or name in pseudo:
                raise refuse(f"The field {name!r} is out of place.")
            pseudo[name] = value
            continue
        is_regular = True
        if name in _NOT_FOR_HTTP_2 or (name == "te" and value != "trailers"):
            raise refuse(f"The field {name!r} is not for HTTP/2.")
    if is_trailers:
        return
    needed = {":method", ":scheme", ":path"} if is_request else {":status"}
    if not needed <= set(pseudo) <= needed | {":authority"} or not pseudo.get(":path", "/"):
        raise refuse(f"The fields {', '.join(sorted(pseudo))}; expected {', '.join(sorted(needed))}.")


def _too_large() -> Violation:
    return Violation(Code.ENHANCE_YOUR_CALM, f"Header fields of more than {MOST:,} bytes.")
