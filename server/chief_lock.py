"""The chief's lock, which comes before the slice's."""

import threading


class ChiefLock(threading.Condition):
    """Guards the run's state. AssertionError where a thread that has the slice's lock alone takes this one, since each could
    then wait for the other, and where one waits that has both, since no push would be counted meanwhile."""

    def __init__(self, inner: threading.Condition) -> None:
        """`inner`: the slice's."""
        super().__init__()
        self._inner = inner

    def __enter__(self) -> bool:
        assert not _has(self._inner) or _has(self), "The chief's lock is taken before the slice's."
        return super().__enter__()

    def wait(self, timeout: float | None = None) -> bool:
        """As in the base class, with this lock alone."""
        assert not _has(self._inner), "Nobody waits for the chief with the slice's lock."
        return super().wait(timeout)


def _has(condition: threading.Condition) -> bool:
    """Whether the calling thread has the condition's lock."""
    try:
        condition.notify(0)  # raises where it has not
    except RuntimeError:
        return False
    return True
