"""Ctrl-C and SIGTERM as something to look at instead of an exception, so that a run can end in order."""

import signal
import threading
from types import FrameType
from typing import Any

from paceline.core.errors import Stopped

CTRL_C = 130


class Signals:
    """While entered, SIGINT and SIGTERM are only noted (in the main thread; elsewhere there is nothing to note)."""

    def __init__(self) -> None:
        self.seen: list[int] = []
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @property
    def exit_code(self) -> int | None:
        """130 or 143 once somebody asked for the end."""
        if not self.seen:
            return None
        return CTRL_C if self.seen[0] == signal.SIGINT else Stopped.exit_code

    def hurry(self) -> bool:
        """Whether they asked again."""
        return len(self.seen) > 1

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen.append(number)
