"""Virtual time: what is to happen, in order. Nothing sleeps and nothing is threaded."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any


class Timeline:
    """The clock that all who take part live by."""

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = itertools.count()
        self.events = 0
        """That have happened so far."""

    @property
    def goes_on(self) -> bool:
        """Whether anything is to happen still."""
        return bool(self._events)

    def after(self, time: float, action: Callable[[], Any]) -> None:
        """`action` is to happen so much later than now."""
        heapq.heappush(self._events, (self.now + time, next(self._order), action))

    def next_event(self) -> bool:
        """Lets time pass up to the next thing that happens; False where nothing is to happen any more."""
        if not self._events:
            return False
        self.now, _, action = heapq.heappop(self._events)
        self.events += 1
        action()
        return True

    def to_the_end(self) -> None:
        """Until nothing is to happen any more."""
        while self.next_event():
            pass
