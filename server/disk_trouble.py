"""What a server says of a disk that takes nothing: once when it begins, and once when it is over."""

from collections.abc import Callable

from paceline.core.errors import DiskError


class DiskTrouble:
    """Knows whether the last try failed, and why. Use from one thread at a time."""

    def __init__(self, failed: str, over: str, say: Callable[..., None]) -> None:
        """`failed`, `over`: the words."""
        self._words = failed, over
        self._say = say
        self._why: object = None
        self.said = ""
        """Why the last try failed, in words; empty where it did not. Any thread may read it."""

    def failed(self, error: DiskError | MemoryError) -> None:
        """A try failed. Logs it, unless the last try failed for the same reason."""
        why = getattr(error.__cause__, "errno", None) or type(error)
        self.said = str(error) or "no memory for it"
        if why != self._why:
            self._say(self._words[0], why=self.said)
        self._why = why

    def works(self) -> None:
        """A try succeeded."""
        if self._why is not None:
            self._why, self.said = None, ""
            self._say(self._words[1])
