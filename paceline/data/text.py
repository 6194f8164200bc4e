"""Reads a text as windows of bytes, each labelled with the byte that follows it."""

from pathlib import Path

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, reading

WHERE = "Any plain text file (UTF-8) of 20 kB or more will do, your own notes for example."
MIN_BYTES, MAX_BYTES = 20_000, 1 << 30
HELD_BACK = 10
"""One in this many bytes is kept for validation, and as many for testing: the last ones, since windows of one passage
share words."""


def read_text(path: str | Path, window: int) -> Dataset:
    """Features uint8 (N, window), labels int64 (N,): the next byte. Windows follow each other without a gap, so an epoch
    predicts each byte once. DataError where there is no such file, or where it is too small, too big or no text."""
    content = _checked(at(path))
    held = len(content) // HELD_BACK
    train, validation, test = np.split(content, [len(content) - 2 * held, len(content) - held])
    return Dataset(_windows(train, window), test=_windows(test, window), validation=_windows(validation, window))


def _windows(content: Array, window: int) -> Labelled:
    count = (len(content) - 1) // window
    labels = content[window : count * window + 1 : window]
    return Labelled(content[: count * window].reshape(count, window), labels.astype(np.int64))


def _checked(path: Path) -> Array:
    """The file's bytes."""
    with reading(f"the text {path}", WHERE):
        size = path.stat().st_size
        if not MIN_BYTES <= size <= MAX_BYTES and path.is_file():
            raise DataError(f"{path} has {size:,} bytes; expected {MIN_BYTES:,} to {MAX_BYTES:,}. {WHERE}")
        content = path.read_bytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start:,}. {WHERE}") from error
    return np.frombuffer(content, np.uint8)
