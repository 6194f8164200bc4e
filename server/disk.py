"""The calls by which a server changes its disk, all in one place: tests put another object here, which cuts the power. And what
a server says of a disk that takes nothing."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from paceline.core.errors import PacelineError


class Disk:
    """Each call is done when it returns, or raises OSError. What a file holds is on the medium after `sync`, what a folder
    holds (new, renamed and removed files) after `sync_folder`."""

    def write(self, path: Path, parts: Iterable[bytes | memoryview]) -> None:
        """Makes a new file of these parts and brings it to the medium. A failure leaves no file: the kernel may drop what it
        could not bring there and still call the next fsync of the same file a success."""
        file = self.create(path)
        try:
            for part in parts:
                self.append(file, part)
            self.sync(file)
        except Exception:
            with suppress(OSError):
                self.unlink(path)
            raise
        finally:
            self.close(file)

    def create(self, path: Path) -> int:
        """A new file's descriptor; an older file of that name is gone."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)

    def append(self, file: int, data: bytes | memoryview) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]

    def sync(self, file: int) -> None:
        os.fsync(file)

    def close(self, file: int) -> None:
        os.close(file)

    def rename(self, before: Path, after: Path) -> None:
        """Replaces what `after` was."""
        os.replace(before, after)

    def unlink(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def stamp(self, path: Path, seconds: int) -> None:
        """Sets when the file was changed last (since 1970). A full disk takes that, too: its inode has the room."""
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.utime(file, (seconds, seconds))
            os.fsync(file)
        finally:
            os.close(file)

    def sync_folder(self, folder: Path) -> None:
        handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


class DiskTrouble:
    """Knows whether the last try to write failed, and why. Use from one thread at a time."""

    def __init__(self, failed: str, over: str, say: Callable[..., None]) -> None:
        """`failed`, `over`: the words."""
        self._words = failed, over
        self._say = say
        self._why: object = None
        self.said = ""
        """Why the last try failed, in words; empty where it did not. Any thread may read it."""

    def failed(self, error: PacelineError | MemoryError) -> None:
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
