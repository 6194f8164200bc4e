"""What fails again and again in this process: in its log, in its heartbeats and for Prometheus."""

import threading
import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Gauge

_FROM = 3
"""Failures in a row that are no accident."""
_LONG = 5.0
"""A failure that took so long is none either (seconds): who waits should know why within 10 s."""
_SILENT = 6.0
"""Nor is such a silence, in which a ping has had no answer for half of the time (seconds)."""
_EVERY = 10.0
"""Time between two lines on the same outage (seconds)."""
_MOST = 300
"""Characters that are kept of a reason."""
Say = Callable[..., None]
Clock = Callable[[], float]


class Outage:
    """The failures in a row of the calls to one server. The third one is a line in the log, or the first one after 5 s in vain;
    then one each 10 s; so is that it works again. Thread-safe."""

    def __init__(self, to: str, say: Say, clock: Clock = time.monotonic, advice: str = "") -> None:
        """`to`: who is called; `advice`: what to do about it, a sentence."""
        self.to = to
        self._say = say
        self._clock = clock
        self._advice = advice or f"Look whether {to} runs, at its log, and whether a firewall is between."
        self.silence: Callable[[], float] = lambda: 0.0
        """For how long the far side has answered nothing while a call waits for it (seconds)."""
        self._lock = threading.Lock()
        self._failures = 0
        self._began = self._said = 0.0
        self._what = self._why = ""
        self._lasts = self._is_silent = False
        """Whether it was said and is not over; whether only silence is known of it."""

    def failed(self, what: str, why: str, lasted: float = 0.0) -> None:
        """The call `what` (a push, say) has failed, for this reason; in vain it `lasted` so long (seconds)."""
        with self._lock:
            self._is_silent = False
            self._note(what, why, lasted, 1)

    def look(self) -> None:
        """Where the far side is silent while a call waits for it, that is as good as a failure."""
        silence = self.silence()
        with self._lock:
            if silence >= _SILENT and (self._is_silent or not self._failures):
                self._is_silent = True
                self._note("a call", f"Not even a ping has had an answer for {silence:.0f} s.", silence, 0)
            elif self._is_silent and not silence:
                self._end()

    def works(self) -> None:
        """A call was answered."""
        if self._failures or self._lasts:
            with self._lock:
                self._end()

    def _note(self, what: str, why: str, lasted: float, failures: int) -> None:
        now, is_new = self._clock(), not (self._failures or self._lasts)
        if is_new:
            self._began = now - lasted
        self._failures += failures
        self._what = what
        self._why = "".join(char if char.isprintable() else " " for char in why[:_MOST])
        if not self._lasts and (self._failures >= _FROM or now - self._began >= _LONG):
            self._lasts = True
        elif not self._lasts or now - self._said < _EVERY:
            return
        self._said = now
        self._say(
            f"{what} to {self.to} keeps failing",
            times=self._failures,
            seconds=round(now - self._began, 1),
            why=why,
            advice=self._advice,
        )

    def _end(self) -> None:
        lasted, self._lasts = self._lasts, False
        self._failures, self._is_silent = 0, False
        if lasted:
            self._say(f"{self._what} to {self.to} works again", seconds=round(self._clock() - self._began, 1))

    @property
    def seconds(self) -> float:
        """For how long calls have failed, once that was said; 0 where they work."""
        return self._clock() - self._began if self._lasts else 0.0

    def __str__(self) -> str:
        """One line: what fails, where, since when, why, and what to do; empty where nothing does."""
        if not self._lasts:
            return ""
        times = f"{self._failures} times " if self._failures else ""
        return f"{self._what} to {self.to} has failed {times}in {self.seconds:.0f} s: {self._why} {self._advice}"


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

    def look(self) -> None:
        """Notes which far sides are silent while calls wait for them."""
        with self._lock:
            watched = list(self._all.values())
        for outage in watched:
            outage.look()

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
