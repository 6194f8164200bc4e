"""Calls one callback in its own thread, so that neither a slow nor a hanging nor a failing one touches the run."""

import inspect
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from paceline.base.own_files import error_text, where
from paceline.callback import Callback, RunBegin, RunEnd, RunWarning, Score, Status

WAITING = 32
"""Statuses that may wait for a callback; of more, the oldest one is left out. All else is few, and always told."""
PATIENCE = 20.0
"""Seconds that all callbacks together have after a run to end by themselves."""
Value = RunBegin | Status | Score | RunWarning | RunEnd


class Listener:
    """One callback. Thread-safe."""

    def __init__(self, callback: Callback, name: str) -> None:
        self.failed: RunWarning | None = None
        """The first thing that went wrong with it."""
        self._callback = callback
        self._name = name
        self._calls: deque[tuple[str, Value]] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(self, begun: RunBegin) -> None:
        """No status goes out before this time."""
        self._thread = threading.Thread(target=self._work, name=f"callback {self._name}", daemon=True)
        self.tell("begun", begun)
        self._thread.start()

    def tell(self, method: str, value: Value) -> None:
        """Calls that method with that value as soon as the ones before are done."""
        if self._thread is None:
            return
        with self._changed:
            statuses = [call for call in self._calls if call[0] == "status"]
            if method == "status" and len(statuses) >= WAITING:
                self._calls.remove(statuses[0])
            self._calls.append((method, value))
            self._changed.notify()

    def close(self, until: float) -> bool:
        """Whether it has ended by then (time.monotonic seconds)."""
        if self._thread is not None:
            self._thread.join(max(0.0, until - time.monotonic()))
        return self._thread is None or not self._thread.is_alive()

    def give_up(self, seconds: float) -> None:
        """It has not ended in time."""
        self._fail(f"did not end within {seconds:.0f} s of the run's end, so what it still had to do is lost")

    def _work(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._calls)
                method, value = self._calls.popleft()
            try:
                getattr(self._callback, method)(value)
            except (Exception, SystemExit) as error:
                self._fail(f"failed in {method}(): {self._fault(error)}")
                if method == "begun":
                    return
            if method == "ended":
                return

    def _fail(self, what: str) -> None:
        if self.failed is None:
            told = f"the callback {self._name} {what}; the run does not need it"
            advice = "correcting what it says, or leaving it out (docs/watch/loggers.md)"
            self.failed = RunWarning(f"callback {self._name}", told, advice, [], 0.0)

    def _fault(self, error: BaseException) -> str:
        """The error, and the callback's line that led to it."""
        kind = type(self._callback)
        try:
            file = inspect.getsourcefile(kind) or ""
        except TypeError:  # a notebook's cell, say
            file = ""
        return f"{error_text(error)} ({where(error, file)})" if file else error_text(error)


def close_all(listeners: Iterable[Listener], end: RunEnd, hurry: Callable[[], bool]) -> None:
    """Tells all that the run is over, and waits for them together, unless somebody is in a hurry."""
    listeners = list(listeners)
    for listener in listeners:
        listener.tell("ended", end)
    start = time.monotonic()
    while not hurry() and time.monotonic() < start + PATIENCE:
        if all(listener.close(time.monotonic() + 0.1) for listener in listeners):
            return
    for listener in listeners:
        if not listener.close(0.0):
            listener.give_up(time.monotonic() - start)
