"""Ends streams whose far side does nothing: neither a partial upload nor a stuck reader may hold memory forever."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Self, TypeVar

T = TypeVar("T")
IDLE = 30.0
"""Longest time without progress of the far side (seconds)."""
PROGRESS = 4096
"""Bytes that are progress; with fewer in that time the far side only drips."""


class _Watched:
    """One direction of a stream that is under way; a context for the time that it is watched."""

    __slots__ = ("_dog", "cancel", "idle", "progress", "since", "start")

    def __init__(
        self, dog: "Watchdog", cancel: Callable[[], Any], progress: Callable[[], float] | None, idle: float = IDLE
    ) -> None:
        self._dog = dog
        self.cancel = cancel
        self.idle = idle
        self.start = dog.now()
        self.progress = progress
        self.since: float | None = None
        """When we began to wait for the far side; None while the work is ours."""

    def __enter__(self) -> Self:
        self._dog.enter(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._dog.leave(self)


class Watchdog:
    """Watches streams; `look` cancels the ones whose time is up. Thread-safe. The clock is handed in."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._watched: set[_Watched] = set()
        self._lock = threading.Lock()
        self._stopped = threading.Event()

    def start(self) -> None:
        """Looks every second until it is stopped."""

        def work() -> None:
            while not self._stopped.wait(1.0):
                self.look()

        threading.Thread(target=work, name="watchdog", daemon=True).start()

    def stop(self) -> None:
        """Once there are no more streams."""
        self._stopped.set()

    def look(self) -> None:
        """Cancels every stream whose far side has made no progress for too long."""
        now = self._clock()
        with self._lock:
            late = [one for one in self._watched if _waits(one, now) > one.idle]
            self._watched.difference_update(late)
        for one in late:
            one.cancel()

    def waiting(
        self, since: Callable[[], float], cancel: Callable[[], Any], idle: float = IDLE
    ) -> AbstractContextManager[object]:
        """While the work is the far side's; `since`: when it made progress last (by `now`); `idle`: how long it may make none
        (seconds)."""
        return _Watched(self, cancel, since, idle)

    def now(self) -> float:
        """The clock's time (seconds)."""
        return self._clock()

    def receiving(self, messages: Iterator[T], cancel: Callable[[], Any]) -> Iterator[T]:
        """The messages as they come; waiting for one is the far side's time, up to the PROGRESS that ends it."""
        waited, fresh = 0.0, 0
        with _Watched(self, cancel, None) as one:
            while True:
                began = self._clock()
                one.since = began - waited
                message = next(messages, None)
                one.since = None
                if message is None:
                    return
                waited += self._clock() - began
                fresh += len(message) if isinstance(message, bytes) else PROGRESS
                if fresh >= PROGRESS:
                    waited, fresh = 0.0, 0
                yield message

    def sending(self, messages: Iterator[T], cancel: Callable[[], Any]) -> Iterator[T]:
        """The messages as they are taken; taking one is the far side's time."""
        with _Watched(self, cancel, None) as one:
            for message in messages:
                one.since = self._clock()
                yield message
                one.since = None

    def enter(self, one: _Watched) -> None:
        with self._lock:
            self._watched.add(one)

    def leave(self, one: _Watched) -> None:
        with self._lock:
            self._watched.discard(one)


def _waits(one: _Watched, now: float) -> float:
    since = one.since if one.progress is None else max(one.start, one.progress())
    return 0.0 if since is None else now - since
