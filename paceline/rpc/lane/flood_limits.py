"""What frames without data may cost: floods of pings, settings, resets and empty frames end a connection."""

import time

from paceline.rpc.lane.frames import Code, Violation

RESET = 5.0
"""What a stream that is reset costs."""
_MOST, _PER_SECOND, _PER_DATA = 1000.0, 200.0, 4.0
"""Frames that carry no data: how many at once, how many more each second, and with each frame of data."""


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
