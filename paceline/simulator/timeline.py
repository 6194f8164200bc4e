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

    def after(self, time: float, action: Callable[[], Any]) -> None:
        """`action` is to happen so much later than now."""
        heapq.heappush(self._events, (self.now + time, next(self._order), action))

    def next_event(self) -> None:
        """Lets time pass up to the next thing that happens."""
        self.now, _, action = heapq.heappop(self._events)
        action()

    def to_the_end(self) -> None:
        """Until nothing is to happen any more."""
        while self._events:
            self.next_event()
