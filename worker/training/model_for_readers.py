"""A worker's local model for readers while it trains."""

from collections import deque
from concurrent.futures import Future

from paceline.core.values import Vector


class LocalModel:
    """Hands the worker's model to readers, never torn: the training loop copies it between two steps, and only where
    somebody asks. Thread-safe."""

    def __init__(self) -> None:
        self._asked: deque[Future[Vector]] = deque()
        self._final: Vector | None = None

    def offer(self, local: Vector) -> None:
        """A step is complete. For the training loop."""
        if self._asked:
            self._answer(local.copy())

    def finish(self, local: Vector) -> None:
        """The model does not change any more, so that readers need no copy. For the training loop."""
        self._final = local
        self._answer(local)

    @property
    def is_final(self) -> bool:
        return self._final is not None

    def read(self, seconds: float) -> Vector | None:
        """The model at the end of the present step; None where that does not come in time. Read only."""
        answer: Future[Vector] = Future()
        self._asked.append(answer)
        if self._final is not None:  # looked up after asking: a worker that finishes meanwhile answers
            return self._final
        try:
            return answer.result(seconds)
        except TimeoutError:
            answer.cancel()
            return None

    def _answer(self, values: Vector) -> None:
        while self._asked:
            answer = self._asked.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_result(values)
