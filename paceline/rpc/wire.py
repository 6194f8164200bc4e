"""The messages of the data plane framed without protobuf: byte for byte what protobuf makes of a part (PushPullRequest and
all that have its three fields), without
copying the tensor bytes into a protobuf object."""

from typing import NamedTuple

from google.protobuf.message import DecodeError

from paceline.core.errors import BadPush
from paceline.v1.parameter_service_pb2 import PushPullRequest

_HEAD, _OFFSET, _DATA = 0x0A, 0x10, 0x7A


class Message(NamedTuple):
    """One part: serialised head (in the first only), offset in elements, and a view of the data."""

    head: bytes
    offset: int
    data: memoryview


def frame(head: bytes, offset: int, data: memoryview | bytes) -> bytes:
    """The serialised message; the data is copied once."""
    return b"".join((part_start(head, offset, len(data)), data))


def parse(message: bytes) -> Message:
    """The message's fields, the data as a view of it; BadPush where it can't be read."""
    try:
        return _parse(message)
    except (IndexError, _Unusual):
        return _parse_by_protobuf(message)


def data_start(start: bytes, length: int) -> tuple[int, int] | None:
    """Of a message of `length` bytes that begins so: the offset, and where the data begins, which goes on to the message's
    end. None where it is framed otherwise; `parse` then reads it when it is whole."""
    try:
        position, offset = 0, 0
        if start[position] == _HEAD:
            head, position = _read_varint(start, position + 1)
            position += head
        if start[position] == _OFFSET:
            offset, position = _read_varint(start, position + 1)
        if start[position] != _DATA:
            return None
        data, position = _read_varint(start, position + 1)
    except (IndexError, _Unusual):
        return None
    return (offset, position) if position + data == length else None


def most_head(tensors: int) -> int:
    """Returns the most bytes of a push's head, for a plan with this number of tensors: each may be named as untouched, and its
    group of the optimizer may have its own rate and options. It is the same on each transport."""
    return (16 << 10) + 64 * tensors


def check_head(length: int, most: int) -> None:
    """Raises BadPush where a head has more bytes than `most_head`."""
    if length > most:
        raise BadPush(f"The first message's head is {length:,} bytes long; expected at most {most:,} for this plan.")


def head_of(start: bytes, most: int) -> bytes | None:
    """The serialised head of a message that begins so, empty where it has none; None: more bytes must come first. BadPush where
    it has more than `most`."""
    try:
        if start[0] != _HEAD:
            return b""
        length, position = _read_varint(start, 1)
    except IndexError:
        return None
    except _Unusual as error:
        raise BadPush("The first message's head is damaged. Compare the versions.") from error
    check_head(length, most)
    return start[position : position + length] if len(start) >= position + length else None


def head_anywhere(message: bytes) -> bytes:
    """The serialised head of a whole message with its fields in any order; empty where there is none."""
    try:
        return parse(message).head
    except BadPush:
        return b""


def part_start(head: bytes, offset: int, length: int) -> bytes:
    """What comes before a part's data of `length` bytes."""
    start = bytearray()
    if head:
        start += bytes((_HEAD,)) + varint(len(head)) + head
    if offset:
        start += bytes((_OFFSET,)) + varint(offset)
    if length:
        start += bytes((_DATA,)) + varint(length)
    return bytes(start)


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


class _Unusual(Exception):
    """Legal, perhaps, but not the order of fields that we write."""


def _parse(message: bytes) -> Message:
    head, offset, position, end = b"", 0, 0, len(message)
    if position < end and message[position] == _HEAD:
        length, position = _read_varint(message, position + 1)
        head, position = message[position : position + length], position + length
    if position < end and message[position] == _OFFSET:
        offset, position = _read_varint(message, position + 1)
    data = memoryview(b"")
    if position < end:
        if message[position] != _DATA:
            raise _Unusual
        length, position = _read_varint(message, position + 1)
        data, position = memoryview(message)[position:], position + length
        if len(data) != length:
            raise _Unusual
    if position != end:
        raise _Unusual
    return Message(head, offset, data)


def _read_varint(message: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = message[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position
        if shift > 63:
            raise _Unusual


def _parse_by_protobuf(message: bytes) -> Message:
    try:
        part = PushPullRequest.FromString(message)
    except DecodeError as error:
        raise BadPush("A message of the data plane is damaged: it is not a part. Compare the versions.") from error
    return Message(part.head.SerializeToString() if part.HasField("head") else b"", part.offset, memoryview(part.data))
