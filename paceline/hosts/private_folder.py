"""The folder of a host, in which all is that it has of the run; it goes with the host, also if that was killed."""

import fcntl
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "paceline-join-"
_LOCK = ".lock"


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that only this user may read, deleted at the end. What hosts that were killed have left is deleted, too."""
    _sweep(Path(tempfile.gettempdir()))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        with (folder / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _sweep(place: Path) -> None:
    """Deletes folders whose host lives no more."""
    for left in place.glob(f"{PREFIX}*"):
        with suppress(OSError), (left / _LOCK).open("r+") as lock:  # another user's, or just being made
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
