"""What a process prints to a file: a disk that is full, read-only or failing loses lines, not the process."""

import io
import os
import stat
from contextlib import suppress
from typing import Any, TextIO


class _Lossy(io.FileIO):
    """A descriptor that takes all that is written, and loses what the disk does not take."""

    def write(self, content: Any, /) -> int:
        left = memoryview(content).cast("B")
        size = len(left)
        with suppress(OSError):
            while left:
                left = left[super().write(left) :]
        return size


def unfailing(stream: TextIO) -> TextIO:
    """stdout or stderr as a stream whose writing never fails, where it is a file; otherwise the stream itself."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)
    if type(raw) is not io.FileIO or raw.fileno() not in (1, 2) or not stat.S_ISREG(os.fstat(raw.fileno()).st_mode):
        return stream
    with suppress(OSError):
        stream.flush()
    lossy = _Lossy(raw.fileno(), "w", closefd=False)
    is_buffered = buffer is not raw
    return io.TextIOWrapper(
        io.BufferedWriter(lossy) if is_buffered else lossy,
        stream.encoding,
        stream.errors,
        line_buffering=bool(stream.line_buffering),
        write_through=not is_buffered,
    )
