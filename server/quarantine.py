"""Shuts out workers that repeatedly send invalid pushes."""

import threading
from collections.abc import Callable, Mapping

from paceline.core.errors import PermissionDenied

STRIKES = 10
"""Number of refused pushes after which a worker may no longer push."""


class Quarantine:
    """Counts invalid pushes for each worker, also over restarts of the server. Thread-safe."""

    def __init__(
        self, before: Mapping[str, int] | None = None, keep: Callable[[dict[str, int]], None] = lambda strikes: None
    ) -> None:
        """`before`: the counts of an earlier process; `keep`: writes them down."""
        self._strikes = dict(before or {})
        self._keep = keep
        self._lock = threading.Lock()

    def check(self, worker: str) -> None:
        """Raises PermissionDenied if the worker is shut out."""
        if self._strikes.get(worker, 0) >= STRIKES:
            raise PermissionDenied(
                f"{worker} sent {STRIKES} pushes with wrong sizes, values or bases, and is shut out. Its log names "
                "the first of them. Fix the worker, then remove strikes.json from the servers' folders and start them again."
            )

    def strike(self, worker: str) -> None:
        """Counts another bad push."""
        with self._lock:
            self._strikes[worker] = self._strikes.get(worker, 0) + 1
            self._keep(dict(self._strikes))
