"""Files that were cut or changed on the way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import DataError


def never_other(path: Path, read: Callable[[], object], content: bytes, first: int = 0, tries: int = 60) -> int:
    """Cuts the content, and flips bits of it from the byte `first` on: each time DataError comes, or the same is read, as where
    a bit is a date or padding. Returns how many of the flips were refused."""
    path.write_bytes(content)
    good, rng, refused = read(), np.random.default_rng(0), 0
    for cut in rng.integers(0, len(content), 20):
        path.write_bytes(content[:cut])
        with pytest.raises(DataError):
            read()

    for place in rng.integers(first, len(content), tries):
        flipped = bytearray(content)
        flipped[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(flipped)
        try:
            assert read() == good
        except DataError:
            refused += 1
    return refused
