"""Keeps our imports apart from the files of a user's folder."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BESIDE: list[str] = []
"""Folders of task files, which stay at the end of the path."""


def find_beside(file: Path) -> None:
    """From now on, what a task's file imports is also looked for next to it, after all other places: a `queue.py` there
    stays the user's, and neither libraries nor we get it."""
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
        _BESIDE.append(folder)


@contextmanager
def installed_first() -> Iterator[None]:
    """While it is open, imports look next to the script, notebook or test that runs last: a `queue.py` there is the
    user's, not the one that libraries mean. Not for several threads at once."""
    kept, standard = list(sys.path), sysconfig.get_paths()["stdlib"]
    own = set[str]()
    for entry in kept:
        if entry.startswith(standard):
            break
        own.add(entry)
    own -= {*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))}
    sys.path.sort(key=own.__contains__)
    try:
        yield
    finally:
        added = [entry for entry in sys.path if entry not in kept]  # by a task's file, or for it
        sys.path[:] = [
            *(entry for entry in added if entry not in _BESIDE),
            *kept,
            *(entry for entry in added if entry in _BESIDE),
        ]
