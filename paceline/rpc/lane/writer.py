"""What goes out on a connection: one sender at a time, and the reader's answers with them."""

import threading
from collections import deque
from collections.abc import Sequence

from paceline.core.errors import TryAgain
from paceline.rpc.lane.frames import Code, Violation
from paceline.rpc.lane.sockets import Buffer, PlainSocket

_QUEUED = 4096
"""Answers to the peer's own frames that wait for it to read."""


class Writer:
    """Frames for one socket. Thread-safe; only `answer` is for the reader, which never waits for a peer that does not read."""

    def __init__(self, sock: PlainSocket) -> None:
        self._sock = sock
        self.turn = threading.Lock()
        """Held by the writing thread; taken around `write` for frames whose order counts."""
        self._answers: deque[bytes] = deque()
        self._partial = b""
        """What is left of an answer that the socket did not take whole."""

    @property
    def has_left(self) -> bool:
        """Whether answers wait for room."""
        return bool(self._partial or self._answers)

    def send(self, buffers: Sequence[Buffer]) -> None:
        """Waits until all of it is out. TryAgain where the connection is lost."""
        with self.turn:
            self.write(buffers)
        self.flush()

    def write(self, buffers: Sequence[Buffer]) -> None:
        """With `turn` held; what is left of answers goes first."""
        if self.has_left:
            waiting = [self._partial, *(self._answers.popleft() for _ in range(len(self._answers)))]
            self._partial = b""
            buffers = [*waiting, *buffers]
        try:
            self._sock.send(buffers)
        except OSError as error:
            self._sock.close()
            raise TryAgain(f"The connection was lost: {error}") from error

    def answer(self, answer: bytes) -> None:
        """A small frame of the reader's."""
        if len(self._answers) > _QUEUED:
            raise Violation(Code.ENHANCE_YOUR_CALM, "Frames ask for more answers than are read.")
        self.last_words(answer)

    def last_words(self, words: bytes) -> None:
        """As far as they go at once."""
        self._answers.append(words)
        self.flush()

    def flush(self) -> None:
        """Sends answers as far as that goes at once; another sender that is at it sends them, too."""
        while self.has_left and self.turn.acquire(blocking=False):
            try:
                data = self._partial + b"".join(self._answers.popleft() for _ in range(len(self._answers)))
                sent = self._sock.try_send(data)
                self._partial = data[sent:]
                if self._partial:
                    return
            except OSError:
                return  # the reader sees it, too
            finally:
                self.turn.release()

    def is_stuck(self, patience: float = 0.5) -> bool:
        """Whether the thread that writes is waiting for the peer to read."""
        if not self.turn.acquire(timeout=patience):
            return True
        self.turn.release()
        return False


def cut(views: list[memoryview], count: int) -> list[memoryview]:
    """Takes this many bytes off the front."""
    taken: list[memoryview] = []
    while count:
        first = views[0]
        taken.append(first[:count])
        if len(first) <= count:
            views.pop(0)
        else:
            views[0] = first[count:]
        count -= len(taken[-1])
    return taken
