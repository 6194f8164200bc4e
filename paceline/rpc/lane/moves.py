"""When something of a call moved last, in either direction."""

import time
from collections.abc import Callable

from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.stream import Stream
from paceline.rpc.watchdog import PROGRESS

_LOOK = 1.0
"""Longest time between two looks (seconds)."""


class Moves:
    """Of one call: what comes, what is handed to the kernel, and what the far side's kernel acknowledges of that, which goes on
    long after the last byte has been handed over. Reads what others count; looks only when it is asked, and asks the kernel
    only once nothing else has moved for a while."""

    def __init__(self, connection: Connection, stream: Stream, now: Callable[[], float] = time.monotonic) -> None:
        """`now`: the clock of the stream."""
        self._connection = connection
        self._stream = stream
        self._now = now
        self._last = now()
        self._touched = stream.touched
        self._sent = stream.counts.sent_bytes
        self._acknowledged: int | None = None
        """As the kernel said at the last look since which nothing else has moved; None if it was not asked."""
        self._patience = 0.0

    def note(self) -> None:
        """Something moves now."""
        self._last = self._now()

    def last(self) -> float:
        """When something moved last."""
        sent, touched = self._stream.counts.sent_bytes, self._stream.touched
        if (sent, touched) != (self._sent, self._touched):
            self._sent = sent
            self._touched = touched
            self._acknowledged = None
            self.note()
        elif self._now() - self._last >= _LOOK:
            before, acknowledged = self._acknowledged, self._connection.acknowledged
            if before is None:
                self._acknowledged = acknowledged
            elif acknowledged - before >= PROGRESS:
                self._acknowledged = acknowledged
                self.note()
        return self._last

    def keep_deadline(self, patience: float) -> None:
        """From now on the call ends where nothing moves for so long (seconds), also while it waits for room."""
        self._patience = patience
        self._stream.on_wait = self._put_off
        self._put_off()

    def _put_off(self) -> None:
        self._stream.deadline = self.last() + self._patience

    def pause(self) -> float:
        """How long to wait until the next look; 0 where the time is up."""
        self._put_off()
        return max(0.0, min(_LOOK, self._stream.deadline - self._now()))
