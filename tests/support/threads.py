"""Threads that are left when what has begun them is closed."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.processes import eventually


@contextmanager
def none_left() -> Iterator[None]:
    """Of those that are begun in the block none is left soon after it, but for those of grpcio's calls, which wait for their
    own deadlines."""
    before = set(threading.enumerate())

    def left() -> list[str]:
        return [each.name for each in threading.enumerate() if each not in before and not each.name.startswith("call")]

    yield
    eventually(lambda: not left(), lambda: f"the end of {left()}")
