"""Puts requests that come at nearly the same time through the model together."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import Overloaded, PacelineError, Stopped, UsageError, is_out_of_memory
from paceline.data.dataset import Array
from paceline.results.serving.served_model import Answer

_NOW, _END = object(), object()
"""Between requests: wait no longer for others; no others come."""


class _Waiting(NamedTuple):
    features: Array
    answer: "Future[Answer]"


class Batches:
    """One thread that gathers requests for `window` seconds from the first one on, or until there are `most` examples, and
    applies the model. Thread-safe."""

    def __init__(
        self,
        apply: Callable[[Array], Answer],
        window: float,
        most: int,
        most_waiting: int,
        note: Callable[[int], None] = lambda examples: None,
    ) -> None:
        """`most_waiting`: examples that may wait at one time; `note`: receives the size of each batch."""
        self._apply = apply
        self._window = window
        self._most = most
        self._most_waiting = most_waiting
        self._note = note
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._waiting = 0
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="batches", daemon=True)
        self._thread.start()

    def submit(self, features: Array) -> "Future[Answer]":
        """The answer to come. UsageError: more examples than one batch takes; Overloaded: too many wait; Stopped: closed."""
        count = len(features)
        self.check_count(count)
        answer: Future[Answer] = Future()
        with self._lock:
            if self._is_closed:
                raise Stopped("This process ends and takes no new requests. Ask another one.")
            if self._waiting + count > self._most_waiting:
                raise Overloaded(
                    f"{self._waiting:,} examples wait already. Try again in a moment, or start more replicas."
                )
            self._waiting += count
            self._queue.put(_Waiting(features, answer))
        return answer

    def check_count(self, examples: int) -> None:
        """Raises UsageError where one batch does not take that many."""
        if examples > self._most:
            raise UsageError(
                f"The request has {examples:,} examples; at most {self._most:,} are taken at a time. Send them in parts."
            )

    def waiting(self) -> int:
        """Examples that have no answer yet."""
        return self._waiting

    def hurry(self) -> None:
        """From now on no request waits for others."""
        self._window = 0.0
        self._queue.put(_NOW)

    def close(self) -> None:
        """Takes no more; returns when all that wait have their answers."""
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._queue.put(_END)
        self._thread.join()

    def _run(self) -> None:
        held: _Waiting | None = None
        is_last = False
        while not is_last or held:
            first = held or self._queue.get()
            if first is _END:
                return
            if first is _NOW:
                continue
            batch = [first]
            held, is_last = self._gather(batch, is_last)
            self._answer(batch)

    def _gather(self, batch: list[_Waiting], is_last: bool) -> tuple[_Waiting | None, bool]:
        """Adds to the batch; a request that does not fit any more, and whether no others come."""
        end, size = time.monotonic() + self._window, sum(len(each.features) for each in batch)
        while size < self._most and not is_last:
            try:
                found = self._queue.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                break
            if found is _NOW:
                break
            if found is _END:
                return None, True
            if size + len(found.features) > self._most:
                return found, False
            batch.append(found)
            size += len(found.features)
        return None, is_last

    def _answer(self, batch: Sequence[_Waiting]) -> None:
        wanted = [each for each in batch if each.answer.set_running_or_notify_cancel()]
        try:
            if wanted:
                self._answer_all(wanted)
        finally:
            with self._lock:
                self._waiting -= sum(len(each.features) for each in batch)

    def _answer_all(self, batch: Sequence[_Waiting]) -> None:
        """Where several fail together, one of them may be the cause: the others shall have their answers."""
        try:
            whole = self._applied(np.concatenate([each.features for each in batch]))
        except Exception as error:
            if len(batch) == 1:
                batch[0].answer.set_exception(_as_reply(error))
                return
            for each in batch:
                self._answer_all([each])
            return
        start = 0
        for each in batch:
            stop = start + len(each.features)
            each.answer.set_result(whole.part(start, stop))
            start = stop

    def _applied(self, features: Array) -> Answer:
        answer = self._apply(features)
        self._note(len(features))
        return answer


def _as_reply(error: Exception) -> Exception:
    """What the caller hears of it."""
    if isinstance(error, PacelineError):
        return error
    if is_out_of_memory(error):
        return Overloaded(
            f"The model ran out of memory: {error}. Send fewer examples at a time, or try again in a moment."
        )
    return UsageError(f"The model can't be applied to these examples: {type(error).__name__}: {error}")
