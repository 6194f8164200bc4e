"""Brings the run's state to the chief's disk: nobody waits for the disk with the lock held, and nobody learns of a change
before it is written."""

import json
import threading
from collections.abc import Callable
from typing import Any

from paceline.core.errors import DiskError, TryAgain
from paceline.server.disk import DiskTrouble
from paceline.server.state_folder import StateFolder
from paceline.server.waiting_calls import LONGEST_WAIT


class RunWriter:
    """Numbers the changes of the run's state and writes it down after them, many changes at once where the disk is slow.
    Thread-safe. A disk that takes nothing costs durability, not the run: a change then counts as written."""

    def __init__(
        self,
        changed: threading.Condition,
        state: Callable[[], dict[str, Any]],
        folder: StateFolder,
        trouble: DiskTrouble,
        fails: Callable[[Exception], None],
        on_written: Callable[[], None],
    ) -> None:
        """`changed`: guards the run's state, which `state` returns with the lock held; `fails` takes an error that is no
        DiskError; `on_written` is called after each write, without the lock."""
        self._changed = changed
        self._state = state
        self._folder = folder
        self._trouble = trouble
        self._fails = fails
        self._on_written = on_written
        self.noted = 0
        """Changes so far. Hold the lock."""
        self._written = 0
        self.has_failed = False
        """Whether the disk did not take the last one."""
        self._is_due = threading.Event()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="run-writer", daemon=True)

    def start(self) -> None:
        """Begins to write in the background."""
        self._thread.start()

    def close(self) -> None:
        """Ends the thread, and writes the last state."""
        self._is_closing = True
        self._is_due.set()
        if self._thread.is_alive():
            self._thread.join()
        self.write()

    def note(self) -> None:
        """The run's state has changed. Hold the lock."""
        self.noted += 1
        self._is_due.set()

    def is_written(self, number: int | None = None) -> bool:
        """Whether this change is on the disk; None: every one, as far as the caller holds the lock."""
        return self._written >= (self.noted if number is None else number)

    def wait(self) -> None:
        """Returns when all changes so far are on the disk. Raises TryAgain where that takes longer than LONGEST_WAIT."""
        with self._changed:
            number = self.noted
            if not self._changed.wait_for(lambda: self.is_written(number), LONGEST_WAIT):
                raise TryAgain(
                    f"The chief's disk has not taken the run's state for {LONGEST_WAIT:g} s. Ask again; look at the disk of "
                    f"{self._folder.run_file}."
                )

    def write(self) -> None:
        """Writes the state as it is now, in the calling thread."""
        with self._changed:
            number, state = self.noted, json.dumps(self._state())  # as text: the run changes it meanwhile
        try:
            self._folder.save_run(json.loads(state))
        except DiskError as error:
            self.has_failed = True
            self._trouble.failed(error)
        else:
            self.has_failed = False
            self._trouble.works()
        finally:
            with self._changed:
                self._written = max(self._written, number)
                self._changed.notify_all()
            self._on_written()

    def _work(self) -> None:
        while True:
            self._is_due.wait()
            if self._is_closing:
                return
            self._is_due.clear()
            try:
                self.write()
            except Exception as error:
                self._fails(error)
                return
