"""What a worker still does between its stop signal and its end: one more push, where the others go on without it."""

import math
import threading
import time

from paceline.core.errors import Stopped

_PATIENCE = 2.6
"""Longest time for the chief to say who goes on (seconds); it looks for 2 s whether the whole run stops."""
_LONGEST = 4.0
"""Longest time from the signal to the end of its last push (seconds), where its last step did not take that long."""
_SHORTEST = 1.0
"""Time that a last push has in any case (seconds)."""


class Parting:
    """The chief says in a heartbeat whether a worker that got a stop signal leaves alone. Then what it has computed and what
    its codec has left out are pushed. Where the whole run stops, nothing is: it comes back with the same bits. Thread-safe."""

    def __init__(self, stop: threading.Event, can_push: bool) -> None:
        """`can_push`: whether there is anybody to push to; readers and runs without servers have none."""
        self._stop = stop
        self._can_push = can_push
        self._answer = threading.Event()
        self._is_alone = False
        self._end: float | None = None
        self.is_over = False
        """Whether the last push has begun."""

    def hear(self, is_alone: bool) -> None:
        """Takes the chief's answer."""
        self._is_alone = is_alone
        self._answer.set()

    def awaits_answer(self) -> bool:
        """Returns whether this worker got a stop signal that the chief has yet to answer. Its time counts from now on."""
        if not self._stop.is_set():
            return False
        self._end = self._end or time.monotonic() + _LONGEST
        return self._can_push and not self._answer.is_set()

    def has_time(self) -> bool:
        """Returns whether a worker with a stop signal may still push; waits for the chief's answer."""
        if self.awaits_answer() and not self._answer.wait(min(_PATIENCE, self.left)):
            return False
        return self._can_push and self._is_alone and self.left > 0

    @property
    def left(self) -> float:
        """Time that a worker with a stop signal has still before it leaves (seconds); infinite without one."""
        self.awaits_answer()
        return math.inf if self._end is None else max(0.0, self._end - time.monotonic())

    def begin_push(self) -> bool:
        """Returns whether the push that begins is the last one. Stopped where there must be none."""
        if not self.has_to_leave:
            return False
        self._end = time.monotonic() + max(self.left, _SHORTEST)
        if self.is_over or not self.has_time():
            raise Stopped("The worker got a signal to stop.")
        self.is_over = True
        return True

    def check(self, owes: bool) -> None:
        """Between two clocks: raises Stopped where a worker with a stop signal has nothing more to push. `owes`: something that
        it computed, or that a codec left out, is not pushed."""
        if self.has_to_leave and (self.is_over or not owes):
            raise Stopped("The worker got a signal to stop.")

    @property
    def has_to_leave(self) -> bool:
        """Whether this worker got a stop signal: what it has done of its clock is all that it pushes."""
        return self._stop.is_set()
