"""Shows what a user's script prints while it runs."""

import re
from collections.abc import Callable
from pathlib import Path

from paceline.launch.supervise.children import printable

_EVENT = b'{"process": "'
"""What our own lines in a log begin with."""
_ERROR = re.compile(rb"Traceback \(most recent call last\)|script: [A-Z]\w+: ")
"""What the end of a script begins with: Python's own, or ours (worker/script/__main__.py)."""


class Printed:
    """What a script prints, as it comes: the whole lines of its log that are not ours."""

    def __init__(self, log: Path, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._read = log.stat().st_size if log.exists() else 0
        self._left = b""
        """A line that has not ended yet, without what it has overwritten, like a progress bar."""

    def tell(self) -> None:
        """Says what is new."""
        try:
            with self._log.open("rb") as log:
                log.seek(self._read)
                text = log.read()
        except OSError:  # not begun yet
            return
        self._read += len(text)
        *lines, left = (self._left + text).split(b"\n")
        self._left = left[max(0, left.rstrip(b"\r").rfind(b"\r")) :]
        for line in lines:
            if _ERROR.match(line):  # the error says how it ended
                break
            if not line.startswith(_EVENT):
                self._say(printable(line.rstrip(b"\r").decode(errors="replace").rpartition("\r")[2]))
