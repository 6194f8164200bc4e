"""Tells crashes that every further start would repeat from those that one survives."""

import re
import signal

from paceline.core.errors import ConfigError, OutOfMemory, PacelineError
from paceline.launch.supervise.children import Child

_UNCAUGHT = 1
"""Python's exit code after an exception that nobody has caught: in a user's script it is theirs to repair."""
_BY_OTHERS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_OWN_FAULTS = (_UNCAUGHT, PacelineError.exit_code, OutOfMemory.exit_code)


class Crashes:
    """The deaths of workers before anything was pushed."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        """Who died with these last words first."""

    def repeated(self, child: Child, code: int) -> str | None:
        """Notes a death; says so where the same one was seen before, of this worker or another."""
        words = _bare(child.last_words(), child.name)
        if not words or not (code in _OWN_FAULTS or (code < 0 and -code not in _BY_OTHERS)):
            return None
        if words not in self._seen:
            self._seen[words] = child.name
            return None
        other = "again" if self._seen[words] == child.name else f"as {self._seen[words]} did"
        last = words.splitlines()[-1]
        return f"{child.name} ended before its first push, {other}, so another start would not help: {last}"

    @staticmethod
    def exit_code(code: int) -> int:
        """Of a run that ends for it."""
        return ConfigError.exit_code if code == _UNCAUGHT else code if code > 0 else PacelineError.exit_code


def _bare(words: str, name: str) -> str:
    """Without what differs from start to start."""
    return re.sub(r"0x[0-9a-f]+|\bpid \d+", "_", words.replace(name, "worker")).strip()
