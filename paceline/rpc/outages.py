"""What fails again and again in this process: in its log, in its heartbeats and for Prometheus."""

import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

_FROM = 3
"""Failures in a row that are no accident."""
_EVERY = 10.0
"""Time between two lines on the same outage (seconds)."""
_MOST = 300
"""Characters that are kept of a reason."""
Say = Callable[..., None]
Clock = Callable[[], float]


class Outage:
    """The failures in a row of the calls to one server. The third one, and one each 10 s after it, is a line in the log; so
    is that it works again. One thread writes, any may read."""

    def __init__(self, to: str, say: Say, clock: Clock = time.monotonic, advice: str = "") -> None:
        """`to`: who is called; `advice`: what to do about it, a sentence."""
        self.to = to
        self._say = say
        self._clock = clock
        self._advice = advice or f"Look whether {to} runs, at its log, and whether a firewall is between."
        self._failures = 0
        self._began = self._said = 0.0
        self._what = self._why = ""

    def failed(self, what: str, why: str) -> None:
        """The call `what` (a push, say) has failed, for this reason."""
        now = self._clock()
        if not self._failures:
            self._began = now
        self._failures += 1
        self._what = what
        self._why = "".join(char if char.isprintable() else " " for char in why[:_MOST])
        if self._failures == _FROM or (self._failures > _FROM and now - self._said >= _EVERY):
            self._said = now
            self._say(
                f"{what} to {self.to} keeps failing",
                times=self._failures,
                seconds=round(now - self._began, 1),
                why=why,
                advice=self._advice,
            )

    def works(self) -> None:
        """A call was answered."""
        failures, self._failures = self._failures, 0
        if failures >= _FROM:
            self._say(f"{self._what} to {self.to} works again", seconds=round(self._clock() - self._began, 1))

    @property
    def seconds(self) -> float:
        """For how long calls have failed, from the third failure on; 0 where they work."""
        return self._clock() - self._began if self._failures >= _FROM else 0.0

    def __str__(self) -> str:
        """One line: what fails, where, since when, why, and what to do; empty where nothing does."""
        if self._failures < _FROM:
            return ""
        times = f"{self._failures} times in {self.seconds:.0f} s"
        return f"{self._what} to {self.to} has failed {times}: {self._why} {self._advice}"


class Outages:
    """All outages of a process. Thread-safe."""

    def __init__(self, say: Say, clock: Clock = time.monotonic) -> None:
        self._say = say
        self._clock = clock
        self._all: dict[str, Outage] = {}
        self._worse: dict[str, str] = {}
        self._lock = threading.Lock()
        self._seconds: Gauge | None = None

    def expose(self, registry: CollectorRegistry) -> None:
        """Has what is watched from now on among the metrics."""
        self._seconds = Gauge(
            "paceline_worker_failing_seconds",
            "Time for which calls to a server have failed again and again; 0 while they work",
            ["to"],
            registry=registry,
        )

    def watch(self, to: str, advice: str = "") -> Outage:
        """Returns what notes the failures of calls to one server: the same one each time."""
        with self._lock:
            if to not in self._all:
                outage = self._all[to] = Outage(to, self._say, self._clock, advice)
                if self._seconds is not None:
                    self._seconds.labels(to).set_function(lambda: outage.seconds)
            return self._all[to]

    def note(self, what: str, text: str) -> None:
        """What works, but not as it should, in sentences; an empty text: it is as it should be again. A change
        is a line in the log."""
        with self._lock:
            before = self._worse.pop(what, "")
            if text:
                self._worse[what] = text
        if text != before:
            self._say(text or f"{what} works again")

    def __str__(self) -> str:
        """The longest of those that last, or else what was noted last; empty where there is nothing."""
        with self._lock:
            longest = max(self._all.values(), key=lambda outage: outage.seconds, default="")
            return str(longest) or next(reversed(self._worse.values()), "")
