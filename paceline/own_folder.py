"""Keeps our imports apart from the files of a user's folder."""

import os
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def installed_first() -> Iterator[None]:
    """While it is open, imports look beside the script, notebook or test that runs last: a `queue.py` there is the user's, not
    the one that libraries mean. Not for several threads at once."""
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
        sys.path[:] = [*(entry for entry in sys.path if entry not in kept), *kept]  # a task's file may have added some
