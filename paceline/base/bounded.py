"""Reads files and streams as far as they may be large: a file that somebody else wrote fills no memory."""

import errno
from pathlib import Path
from typing import Protocol

MOST_KEY = 1 << 20
"""Largest file with a token, a certificate or a key (bytes)."""
MOST_MODEL = 64 << 30
"""Largest file of a model (bytes): 16 billion float32."""
_PIECE = 1 << 20


class _Stream(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


def read_bytes(path: Path, most: int) -> bytes:
    """A file's content. OSError as of `open`, and where it has more than `most` bytes."""
    with path.open("rb") as stream:
        found = read_most(stream, most + 1)
    if len(found) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes, the most that is read", str(path))
    return bytes(found)


def read_text(path: Path, most: int) -> str:
    """The same as text. UnicodeDecodeError where it is none in UTF-8."""
    return read_bytes(path, most).decode().replace("\r\n", "\n")


def read_most(stream: _Stream, most: int) -> bytearray:
    """A stream to its end, or as many bytes: in pieces, since `read` takes memory for all that it is asked for at once."""
    found = bytearray()
    while len(found) < most and (piece := stream.read(min(_PIECE, most - len(found)))):
        found += piece
    return found
