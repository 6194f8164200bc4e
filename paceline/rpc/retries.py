"""How long to wait before the next attempt, and when to give up."""

import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from paceline.core.errors import PacelineError, PoolFull, ServersGone, Stopped, StoreGone, TryAgain
from paceline.rpc.outages import Outage

T = TypeVar("T")
_JITTER = random.SystemRandom()
"""Neither shared by forked processes nor drawn from by scripts, whose numbers a retry must not shift."""
STORE_PATIENCE = 60.0
"""How long an object store that does not answer is asked again (seconds); its package tries a few times each time."""


def retried(
    attempt: Callable[[], T],
    patience: float,
    outage: Outage,
    stop: threading.Event,
    what: str = "a call",
    again: type[PacelineError] = TryAgain,
) -> T:
    """Repeats an attempt that raises `again` (but not a full pool) for `patience` seconds from the first failure on, with
    jittered backoff. `outage` notes the failures of the call `what`. ServersGone when the time is up, Stopped when told to
    stop."""
    failed: float | None = None
    for pause in backoff():
        began = time.monotonic()
        try:
            found = attempt()
        except PoolFull:
            raise
        except again as error:
            now = time.monotonic()
            failed = failed or now
            outage.failed(what, str(error), now - began)
            if now + pause - failed > patience:
                raise ServersGone(f"{outage.to} did not answer in time: {error}") from error
        else:
            outage.works()
            return found
        if stop.wait(pause):
            raise Stopped("The process got a signal to stop.")
    raise AssertionError("backoff never ends")


class Patient:
    """Repeats calls to an object store that does not answer. ServersGone when STORE_PATIENCE is over, Stopped when told to
    stop."""

    def __init__(self, stop: threading.Event, say: Callable[..., None]) -> None:
        self._stop = stop
        self._outage = Outage("the object store", say)

    def __call__(self, attempt: Callable[[], T]) -> T:
        return retried(attempt, STORE_PATIENCE, self._outage, self._stop, again=StoreGone)


def backoff() -> Iterator[float]:
    """Pauses between attempts: 50 ms doubling to 2 s, with full jitter (seconds)."""
    ceiling = 0.05
    while True:
        yield _JITTER.uniform(ceiling / 2, ceiling)
        ceiling = min(2.0, ceiling * 2)
