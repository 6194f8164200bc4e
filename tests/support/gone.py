"""Whether a process has ended."""

import psutil


def is_gone(pid: int) -> bool:
    """A zombie has ended, too: an orphan's new parent may take a moment to bury it. The process may vanish while it is looked
    at."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except (FileNotFoundError, ProcessLookupError, psutil.NoSuchProcess):
        return True
