"""Lets calls wait under a lock for a worker's reply or a reader's version."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from paceline.core.errors import TryAgain, VersionGone
from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Published, Reply
from paceline.rpc.transport import IsThere

LONGEST_WAIT = 20.0
"""Longest time that a call waits before its caller has to ask again (seconds)."""
LOOK = 1.0
"""Time between two checks that a waiting caller is still there (seconds)."""

T = TypeVar("T")


def wait_until(
    changed: threading.Condition, found: Callable[[], T | None], deadline: float, is_there: IsThere
) -> T | None:
    """The first result of `found` that is not None, tried after every change; None when the time is up.
    TryAgain if the caller is gone, which frees the thread. Hold the lock."""
    while (result := found()) is None:
        left = deadline - time.monotonic()
        if left <= 0:
            break
        if not is_there():
            raise TryAgain("The caller has gone away.")
        changed.wait(min(left, LOOK))
    return result


@dataclass(eq=False, slots=True)
class WaitingPush:
    """A call that waits for a worker's reply."""

    reply: Reply | None = None
    is_counted: bool = False
    """The slice has the push."""


class WaitingPushes:
    """Gives each worker's next reply to its latest call. Hold the lock for all calls."""

    def __init__(self, changed: threading.Condition) -> None:
        self._changed = changed
        self._calls: dict[str, WaitingPush] = {}

    def expect(self, worker: str, call: WaitingPush) -> None:
        """Registers this call for the worker's next reply; an earlier waiting call learns that it lost its place."""
        self._calls[worker] = call

    def drop_all(self) -> None:
        """Lets every waiting call ask again: nothing that they wait for comes any more."""
        self._calls.clear()
        self._changed.notify_all()

    def deliver(self, reply: Reply) -> bool:
        """Hands a reply to the call that waits for it; False if none does."""
        call = self._calls.pop(reply.worker, None)
        if call is None:
            return False
        call.reply = reply
        return True

    def answer(
        self, worker: str, call: WaitingPush, is_member: Callable[[], bool], deadline: float, is_there: IsThere
    ) -> Reply | None:
        """Waits for the call's reply; None when the time is up or the worker is no longer a member. TryAgain if a repeat
        took the call's place, or the caller is gone."""

        def is_over() -> bool | None:
            return True if call.reply or self._calls.get(worker) is not call or not is_member() else None

        try:
            wait_until(self._changed, is_over, deadline, is_there)
            if call.reply is None and self._calls.get(worker) is not call:
                raise TryAgain(f"A repeat of {worker}'s push replaced this call.")
            return call.reply
        finally:
            if self._calls.get(worker) is call:
                del self._calls[worker]


@dataclass(eq=False, slots=True)
class _WaitingPull:
    """A call that waits for a version (None: any) to come."""

    version: int | None
    mean: bool
    came: threading.Condition
    """Its own: a change for others does not wake its thread."""
    published: Published | None = None
    gone: VersionGone | None = None

    def look(self, model_slice: ModelSlice) -> None:
        """Takes the version if it exists now."""
        if self.published is None:
            try:
                self.published = model_slice.pull(self.version, self.mean)
            except VersionGone as error:
                self.gone = error
            if self.published is not None or self.gone is not None:
                self.came.notify()


class WaitingPulls:
    """Calls that wait for a version. All with the lock held."""

    def __init__(self, lock: threading.RLock) -> None:
        self._lock = lock
        self._calls: list[_WaitingPull] = []

    def serve(self, model_slice: ModelSlice | None) -> None:
        """Pins a new version for its waiting calls before any other change."""
        if model_slice is not None:
            for call in self._calls:
                call.look(model_slice)

    def answer(
        self,
        version: int | None,
        mean: bool,
        model_slice: ModelSlice | None,
        deadline: float,
        is_there: IsThere,
    ) -> Published | None:
        """Waits for a version and pins it as soon as it exists; None when the time is up. VersionGone if it is no longer
        kept, TryAgain if the caller is gone."""
        call = _WaitingPull(version, mean, threading.Condition(self._lock))
        self._calls.append(call)
        try:
            self.serve(model_slice)
            wait_until(call.came, lambda: call.published or call.gone, deadline, is_there)
        finally:
            self._calls.remove(call)
        if call.gone is not None:
            raise call.gone
        return call.published
