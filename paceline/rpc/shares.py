"""How many calls a caller may have under way at one server, so that those of one caller can't take the threads of all."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from paceline.core.errors import Overloaded
from paceline.rpc.roles import Caller

SHARE = {"worker": 8, "evaluator": 8, "server": 8, "reader": 4}
"""Calls of one token at once, by its role; those of an admin, and of callers without a token, are not counted."""
READERS = 256
"""Calls of all readers at once; most wait or send little, each in its own thread."""
_UNCOUNTED = nullcontext()


class Shares:
    """Counts the calls that are under way. Thread-safe; transports of one server share it."""

    def __init__(self, processes: int | None = None, readers: int = READERS) -> None:
        """`processes`: how many may share a token whose name stands for several (`worker-*`), each with a share; None: any
        number. `readers`: calls of all of them."""
        self._processes = processes
        self._readers = readers
        self._calls: Counter[Caller] = Counter()
        self._reading = 0
        self._lock = threading.Lock()

    def call(self, who: Caller) -> AbstractContextManager[None]:
        """Around a call of this caller. Raises Overloaded, when it is entered, where it has its share already."""
        return _UNCOUNTED if who.claims is None or who.role == "admin" else self._counted(who)

    @contextmanager
    def _counted(self, who: Caller) -> Iterator[None]:
        reads = who.role == "reader"
        with self._lock:
            self._check(who, reads)
            self._calls[who] += 1
            self._reading += reads
        try:
            yield
        finally:
            with self._lock:
                self._calls[who] -= 1
                self._reading -= reads
                if not self._calls[who]:
                    del self._calls[who]

    def _check(self, who: Caller, reads: bool) -> None:
        share = SHARE[who.role]
        if "*" in who.name:
            share = share * self._processes if self._processes else self._calls[who] + 1
        if self._calls[who] >= share:
            raise Overloaded(
                f"The token of {who.name or 'this'} ({who.role}) has {share} calls under way at this server, as many as it may "
                "have at once. Wait until one of them has ended, then ask again."
            )
        if reads and self._reading >= self._readers:
            raise Overloaded(
                f"Readers have {self._readers} calls under way at this server, as many as all of them may have at once. Ask "
                "again in a few seconds."
            )
