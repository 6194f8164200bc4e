"""Ctrl-C, SIGTERM and the notice that PACELINE_NOTICE names as something to look at instead of an exception, so that a run can
end in order."""

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from paceline.core.errors import Stopped
from paceline.rpc.notice import Watch, watch

CTRL_C = 130


class Signals:
    """While entered, SIGINT and SIGTERM are only noted (in the main thread; elsewhere there is nothing to note), and a notice
    counts as SIGTERM does. Entering raises ConfigError as `watch` does."""

    def __init__(self, say: Callable[[str], None] = lambda text: None) -> None:
        self._say = say
        self.seen: list[int] = []
        self._is_notice = False
        """Whether the first one seen is no signal."""
        self._watch: Watch | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "Signals":
        self._watch = watch(self._note_notice, self._say)
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        if self._watch is not None:
            self._watch.close()
        for number, before in self._before.items():
            signal.signal(number, before)

    @property
    def exit_code(self) -> int | None:
        """130 or 143 once somebody asked for the end."""
        if not self.seen:
            return None
        return CTRL_C if self.seen[0] == signal.SIGINT else Stopped.exit_code

    def hurry(self) -> bool:
        """Whether they asked again. A signal after a notice is not that."""
        return len(self.seen) > 1 + self._is_notice

    def _note_notice(self) -> None:
        if not self.seen:
            self._is_notice = True
            self.seen.append(signal.SIGTERM)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen.append(number)
