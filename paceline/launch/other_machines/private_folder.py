"""A folder with a run's keys and files, which goes with the process that made it, also if that was killed."""

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

JOINER, KEYS = "paceline-join-", "paceline-keys-"
"""What the folders of hosts, and those with a head's keys, are called."""
_LOCK = ".lock"
_GUARD = 'trap "" HUP INT TERM; cat >/dev/null; for again in 1 2 3 4 5; do rm -rf -- "$1" && break; sleep 1; done'
"""Waits until its stdin is closed, which the kernel does when we end, however that is."""


@contextmanager
def private_folder(prefix: str) -> Iterator[Path]:
    """A new folder that only this user may read, deleted at the end; where we are killed, by a small process next to us.
    What was left by those that were killed with all their processes is deleted now."""
    _sweep(Path(tempfile.gettempdir()), prefix)
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    with (folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _guarded(folder):
            yield folder


@contextmanager
def _guarded(folder: Path) -> Iterator[None]:
    """Deleted when this ends, and when this process does."""
    try:
        guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "paceline-guard", str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
    except OSError:  # without a shell it is deleted by us alone, and by the next sweep
        guard = None
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if guard is not None and guard.stdin is not None:
            guard.stdin.close()
            guard.wait()


def _sweep(place: Path, prefix: str) -> None:
    """Deletes folders whose process lives no more."""
    for left in place.glob(f"{prefix}*"):
        with suppress(OSError), (left / _LOCK).open("r+") as lock:  # another user's, or just being made
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
