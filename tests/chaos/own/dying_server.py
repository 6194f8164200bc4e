"""`python -m paceline.server` for chaos rounds: dies at a named point when asked to, and notes in a file next to its folder
what the folder would hold if the machine lost its power. Nothing of this is in the product."""

import os
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.core.slice.model_slice import ModelSlice
from paceline.core.values import Push, Reply
from paceline.processes.exits import run_command
from paceline.server import state_folder
from paceline.server.__main__ import main as serve
from paceline.server.parameter_servicer import ParameterServicer
from tests.chaos.power import NotedDisk

POINTS = ("before the fold", "after the fold", "before the answer", "after the answer")
"""Of one push: the slice has not seen it; has counted and folded it; its answer is made; its worker has all answers."""


def die() -> None:
    """At once, as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


class Points:
    """Watches the pushes of this server. `order`: the file that somebody writes to say at which point, and at which new push
    from then on, the server dies; it is gone when the server is."""

    def __init__(self, order: Path) -> None:
        self._order = order
        self._point = ""
        self._left = 0
        self._counted: tuple[str, int] | None = None
        """Worker and clock of the push at which the server dies."""

    def at_push(self, model_slice: ModelSlice, push: Push, count: Callable[[ModelSlice, Push], Any]) -> Any:
        """In place of ModelSlice.push, under the driver's lock."""
        if push.clock <= model_slice.clocks.entry(push.worker).clock or not self._is_told():
            return count(model_slice, push)
        if self._point == POINTS[3] and noted(push.worker) >= push.clock:  # an earlier server has answered it
            return count(model_slice, push)
        if self._left == 1 and self._point == POINTS[0]:
            self._reach(POINTS[0])
        replies = count(model_slice, push)
        self._left -= 1
        if not self._left:
            self._reach(POINTS[1])
            self._counted = push.worker, push.clock
            if self._point == POINTS[3]:
                threading.Thread(target=self._await_answer, args=self._counted, daemon=True).start()
        return replies

    def at_answer(self, reply: Reply) -> None:
        """When a reply is about to be sent."""
        if self._counted == (reply.worker, reply.clock):
            self._reach(POINTS[2])

    def _is_told(self) -> bool:
        if not self._point and self._order.exists():
            self._point, _, after = self._order.read_text().partition(":")
            self._left = int(after)
        return bool(self._point) and self._left > 0

    def _reach(self, point: str) -> None:
        if self._point == point:
            self._order.unlink()
            die()

    def _await_answer(self, worker: str, clock: int) -> None:
        """Dies once the worker has noted that all servers have answered."""
        while noted(worker) < clock:
            time.sleep(0.001)
        self._reach(POINTS[3])


def noted(worker: str) -> int:
    """The last clock for which this worker has had all servers' answers."""
    note = Path(f"answered-{worker.removeprefix('worker-')}")
    raw = note.read_bytes() if note.exists() else b""
    return int(struct.unpack("<q", raw[:8])[0]) if len(raw) >= 8 else 0


def main() -> None:
    """Puts the points and the noted disk in place, and serves."""
    folder = Path(sys.argv[sys.argv.index("--folder") + 1])
    points = Points(order_file(folder))
    count, answer = ModelSlice.push, ParameterServicer._answer

    def pushed(model_slice: ModelSlice, push: Push) -> Any:
        return points.at_push(model_slice, push, count)

    def answered(servicer: ParameterServicer, reply: Reply) -> Any:
        points.at_answer(reply)
        return answer(servicer, reply)

    ModelSlice.push = pushed  # type: ignore[method-assign]
    ParameterServicer._answer = answered  # type: ignore[method-assign]
    state_folder.Disk = lambda: NotedDisk.of(folder)  # type: ignore[assignment,misc]
    run_command(serve)


def order_file(folder: Path) -> Path:
    """Where a server with this folder looks for the point at which it dies."""
    return folder.with_suffix(".die")


if __name__ == "__main__":
    main()
