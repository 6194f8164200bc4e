"""Threads that answer a server's calls. Unlike concurrent.futures' they refuse what they have no room for, and keep no result,
whose locks small exchanges feel."""

import threading
import traceback
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")
After = Callable[[], None] | None
Work = Callable[[], After]
"""Answers; what it returns is called when its thread is free for other work already."""


class Threads:
    """At most `most`, each started when it is needed first. Thread-safe."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._started = 0
        self._stopped = False
        self._free: list[SimpleQueue[Work | None]] = []
        self._lock = threading.Lock()

    def run(self, work: Work) -> bool:
        """In a thread that is free; False where none is."""
        with self._lock:
            if self._free:
                inbox = self._free.pop()
            elif self._started == self._most or self._stopped:
                return False
            else:
                inbox = SimpleQueue()
                try:
                    threading.Thread(target=self._run, args=(inbox,), name="lane-call", daemon=True).start()
                except RuntimeError:  # the system has no more threads
                    return False
                self._started += 1
        inbox.put(work)
        return True

    def lend(self) -> bool:
        """Counts a thread that is not of these as one of the `most`, until `give_back`; False where there are that many."""
        with self._lock:
            if self._free:
                self._free.pop().put(None)
            elif self._started == self._most or self._stopped:
                return False
            else:
                self._started += 1
        return True

    def give_back(self) -> None:
        """What was lent."""
        with self._lock:
            self._started -= 1

    def stop(self) -> None:
        """No more work; what has been begun goes on."""
        with self._lock:
            self._stopped = True
            while self._free:
                self._free.pop().put(None)

    def _run(self, inbox: "SimpleQueue[Work | None]") -> None:
        while (work := inbox.get()) is not None:
            after = _done(work)
            with self._lock:
                if self._stopped:
                    return
                self._free.append(inbox)
            if after is not None:
                _done(after)


def _done(work: Callable[[], T]) -> T | None:
    try:
        return work()
    except Exception:  # a bug: the thread lives on
        traceback.print_exc()
        return None
