"""Paceline's training loop (worker/training/training_loop.py) in its own thread, next to a script that computes its gradients.

The loop asks for a gradient and waits until the script has one; the script then waits until the weights have come. Only one of
the two runs at a time, so policies, local steps, rejoining and resuming are the same code as in every worker."""

import signal
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from paceline.core.errors import PacelineError, PlanMismatch, Stopped, in_brief
from paceline.rpc.process import stop_on_signals
from paceline.worker.training.step_result import Finished

_CTRL_C = 130
Stopping = tuple[threading.Event, list[int]]
"""What `stop_on_signals` returns."""


class _Left(BaseException):
    """The script has left before the run's end. A BaseException, so that no code catches it by accident."""

    def __init__(self, is_failure: bool) -> None:
        """`is_failure`: by an error, so that it may be started again."""
        super().__init__()
        self.is_failure = is_failure


FINAL = "final"
"""What the loop asks for once it has trained to the end: that the script's thread takes the final version, when it has ended
its epoch."""


class LoopThread:
    """The thread, and what goes between it and the script. `start`, `wait`, `answer` and `close` belong to the script's
    thread, `ask` to the loop's."""

    def __init__(self) -> None:
        self._asks: SimpleQueue[Any] = SimpleQueue()
        """To the script: what the loop asks for, how it failed, or None for its end."""
        self._answers: SimpleQueue[Any] = SimpleQueue()
        """From the script: what it was asked for, or that it has left."""
        self._before: dict[int, Any] = {}
        self._thread: threading.Thread | None = None

    def start(self, work: Callable[[Stopping], int]) -> None:
        """Begins a whole worker's life, which gives an exit code. While it lasts, Ctrl-C and SIGTERM end it in order, at the
        next step (where this is the main thread)."""
        stopping: Stopping = (threading.Event(), [])
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
            stopping = stop_on_signals()
        self._thread = threading.Thread(target=self._work, args=(work, stopping), name="loop", daemon=True)
        self._thread.start()

    def wait(self) -> Any:
        """What the loop asks for next; None when it has ended. Raises what it failed with."""
        asked = self._asks.get()
        if asked is None or isinstance(asked, BaseException):
            self._free_signals()
        if isinstance(asked, PlanMismatch):
            raise PlanMismatch(f"{asked} Parameters must have the same names, order and shapes.") from None
        if isinstance(asked, PacelineError):
            raise in_brief(asked)
        if isinstance(asked, BaseException):
            raise asked
        return asked

    def answer(self, answer: Any) -> None:
        """Gives the loop the answer to its request."""
        self._answers.put(answer)

    def ask(self, what: Any) -> Any:
        """In the loop: the script's answer."""
        self._asks.put(what)
        answer = self._answers.get()
        if isinstance(answer, _Left | Finished):
            raise answer
        return answer

    def finish(self) -> None:
        """Leaves the run as a worker that has done its share; `wait` then says what is left to do."""
        self._answers.put(Finished())

    def close(self, is_failure: bool) -> None:
        """Leaves the run; before its end, the others go on without this worker. `is_failure`: by an error, so that they may be
        to wait for it (`on_lost_worker`). Does nothing the second time."""
        self._answers.put(_Left(is_failure))
        if self._thread is not None:
            self._thread.join()
        self._free_signals()

    def _free_signals(self) -> None:
        """The script's own handlers again."""
        while self._before:
            signal.signal(*self._before.popitem())

    def _work(self, work: Callable[[Stopping], int], stopping: Stopping) -> None:
        end: BaseException | None = None
        try:
            code = work(stopping)
            if code:
                end = KeyboardInterrupt() if code == _CTRL_C else Stopped("The worker got a signal to stop.")
        except BaseException as error:  # it belongs to the script, which waits for it
            end = error
        self._asks.put(end)
