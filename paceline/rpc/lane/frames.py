"""HTTP/2's frames: their numbers, their nine bytes of header, and what is wrong with one by its shape alone (RFC 9113)."""

from enum import IntEnum
from struct import Struct

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES = 9
DEFAULT_WINDOW, DEFAULT_FRAME, DEFAULT_TABLE = 65_535, 16_384, 4096
MOST_WINDOW, MOST_FRAME = (1 << 31) - 1, (1 << 24) - 1
END_STREAM = ACK = 0x1
END_HEADERS, PADDED, PRIORITY = 0x4, 0x8, 0x20


class Kind(IntEnum):
    """Section 6."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Code(IntEnum):
    """Why a stream or a connection ends (section 7)."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    SETTINGS_TIMEOUT = 4
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    CONNECT_ERROR = 10
    ENHANCE_YOUR_CALM = 11


class Setting(IntEnum):
    """Section 6.5.2."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Violation(Exception):
    """The peer broke HTTP/2's rules, or our bounds: ends one stream, or the connection where `stream` is 0."""

    def __init__(self, code: Code, text: str, stream: int = 0) -> None:
        super().__init__(text)
        self.code = code
        self.stream = stream


_HEADER = Struct("!HBBBI")
_SETTING = Struct("!HI")
_LENGTHS = {Kind.PRIORITY: 5, Kind.RST_STREAM: 4, Kind.PING: 8, Kind.WINDOW_UPDATE: 4}
_OF_CONNECTION = (Kind.SETTINGS, Kind.PING, Kind.GOAWAY)
_OF_EITHER = (Kind.WINDOW_UPDATE,)


def frame_header(length: int, kind: int, flags: int, stream: int) -> bytes:
    """The nine bytes before a frame's content (section 4.1)."""
    return _HEADER.pack(length >> 8, length & 0xFF, kind, flags, stream)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A whole frame."""
    return frame_header(len(payload), kind, flags, stream) + payload


def parse_header(raw: bytes) -> tuple[int, int, int, int]:
    """Length, kind, flags and stream; the reserved bit is not looked at."""
    high, low, kind, flags, stream = _HEADER.unpack(raw)
    return high << 8 | low, kind, flags, stream & MOST_WINDOW


def check_shape(length: int, kind: int, flags: int, stream: int, most: int) -> None:
    """Refuses a frame before its content is read: larger than `most`, of a wrong size, or on a stream where it has no place
    (sections 4.2 and 6)."""
    if length > most:
        raise Violation(Code.FRAME_SIZE_ERROR, f"A frame of {length:,} bytes; at most {most:,} are taken.")
    if kind == Kind.DATA and stream and length:
        return  # the usual one: none of the rest is for it
    if kind > Kind.CONTINUATION:
        return  # section 4.1: unknown kinds are skipped
    if kind in _OF_CONNECTION and stream:
        raise Violation(Code.PROTOCOL_ERROR, f"A {Kind(kind).name} frame on stream {stream}.")
    if kind not in (*_OF_CONNECTION, *_OF_EITHER) and not stream:
        raise Violation(Code.PROTOCOL_ERROR, f"A {Kind(kind).name} frame on no stream.")
    expected = _LENGTHS.get(Kind(kind))
    if expected is not None and length != expected:
        one = stream if kind == Kind.PRIORITY else 0
        raise Violation(Code.FRAME_SIZE_ERROR, f"A {Kind(kind).name} frame of {length} bytes.", one)
    if kind == Kind.SETTINGS and (length % 6 or (flags & ACK and length)):
        raise Violation(Code.FRAME_SIZE_ERROR, f"A SETTINGS frame of {length} bytes.")
    if kind in (Kind.DATA, Kind.HEADERS) and flags & PADDED and not length:
        raise Violation(Code.FRAME_SIZE_ERROR, "A padded frame without its length of padding.")
    if kind == Kind.GOAWAY and length < 8:
        raise Violation(Code.FRAME_SIZE_ERROR, f"A GOAWAY frame of {length} bytes.")


def settings_frame(values: dict[Setting, int]) -> bytes:
    """Our settings."""
    return frame(Kind.SETTINGS, 0, 0, b"".join(_SETTING.pack(key, value) for key, value in values.items()))


def parse_settings(payload: bytes) -> list[tuple[int, int]]:
    """The peer's, in order, each within its bounds (section 6.5.2); unknown ones too."""
    found: list[tuple[int, int]] = list(_SETTING.iter_unpack(payload))
    for key, value in found:
        if key == Setting.ENABLE_PUSH and value > 1:
            raise Violation(Code.PROTOCOL_ERROR, f"ENABLE_PUSH is {value}.")
        if key == Setting.INITIAL_WINDOW_SIZE and value > MOST_WINDOW:
            raise Violation(Code.FLOW_CONTROL_ERROR, f"INITIAL_WINDOW_SIZE is {value:,}.")
        if key == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME <= value <= MOST_FRAME:
            raise Violation(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {value:,}.")
    return found


def window_update(stream: int, count: int) -> bytes:
    """Gives the peer room to send."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, count.to_bytes(4, "big"))


def reset(stream: int, code: Code) -> bytes:
    """Ends a stream."""
    return frame(Kind.RST_STREAM, 0, stream, int(code).to_bytes(4, "big"))


def goaway(last: int, code: Code, text: str = "") -> bytes:
    """Ends a connection, or lets it end: no stream after `last` is served."""
    return frame(Kind.GOAWAY, 0, 0, last.to_bytes(4, "big") + int(code).to_bytes(4, "big") + text.encode()[:200])


def unpadded(payload: bytes, flags: int) -> bytes:
    """A HEADERS frame's block without padding (section 6.2) and priority."""
    start, end = 0, len(payload)
    if flags & PADDED:
        start, end = 1, end - payload[0]
    if flags & PRIORITY:
        start += 5
    if start > end:
        raise Violation(Code.PROTOCOL_ERROR, "Padding or priority longer than its frame.")
    return payload[start:end]
