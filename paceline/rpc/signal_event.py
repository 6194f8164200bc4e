"""An event that a signal's handler may set at any moment."""

import os
import select
import threading
import weakref
from contextlib import suppress


class SignalEvent(threading.Event):
    """As its base, whose `set` takes a lock: a handler that runs while its own thread holds that lock, in the middle of
    `wait`, would wait forever. Here a byte in a pipe is what says that it is set. Never cleared."""

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._is_set = False
        for descriptor in (self._reader, self._writer):
            weakref.finalize(self, os.close, descriptor)

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        with suppress(BlockingIOError):  # it was set very often
            os.write(self._writer, b"\0")

    def wait(self, timeout: float | None = None) -> bool:
        """Returns whether it is set, once it is or the seconds are over; any thread may wait."""
        if not self._is_set:
            waiting = select.poll()
            waiting.register(self._reader, select.POLLIN)
            waiting.poll(None if timeout is None else max(0.0, timeout) * 1000)
        return self._is_set
