"""What a launcher itself writes to the run's folder while processes run. A disk that is full, read-only or failing costs
records, not the run."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.launch.folder.run_folder import RunFolder


class OwnRecords:
    """Writes run.json and metrics.jsonl. What fails is said once, and so is that it works again. Of the launcher's thread."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        self._owed: dict[str, Any] = {}
        """Facts that are not in run.json yet."""
        self._is_failing = False

    def note(self, **facts: Any) -> None:
        """Adds to run.json, now or as soon as that works."""
        self._owed |= facts
        self._try(self._settle, "run.json")

    def line(self, text: str) -> None:
        """Adds a line to metrics.jsonl, and to run.json what is missing there. A line that can't be written is left out:
        the next one holds all that it said, but for the figures of that moment."""
        self._try(lambda: append(self._folder.metrics, f"{text}\n".encode()), "metrics.jsonl")
        if self._owed:
            self._try(self._settle, "run.json")

    def _settle(self) -> None:
        self._folder.write_facts(**self._owed)
        self._owed = {}

    def _try(self, write: Callable[[], None], name: str) -> None:
        try:
            write()
        except OSError as error:
            if not self._is_failing:
                path = self._folder.path / name
                self._say(
                    f"can't write {path}: {error.strerror}. The run goes on; what is missing there is written once the disk "
                    "takes it."
                )
            self._is_failing = True
            return
        if self._is_failing and not self._owed:
            self._is_failing = False
            self._say(f"{self._folder.path} can be written again.")


def append(path: Path, content: bytes) -> None:
    """Adds to the file's end, all or nothing. OSError where that can't be done."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        before = os.fstat(file).st_size
        try:
            written = os.write(file, content)
            if written < len(content):
                os.write(file, content[written:])  # says why it was too short
        except OSError:
            os.ftruncate(file, before)
            raise
    finally:
        os.close(file)
