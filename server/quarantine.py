"""Shuts out workers that repeatedly send invalid pushes."""

import threading

from paceline.core.errors import PermissionDenied

STRIKES = 10
"""Number of refused pushes after which a worker may no longer push."""


class Quarantine:
    """Counts invalid pushes for each worker; a restart of the server clears the counts. Thread-safe."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(self, worker: str) -> None:
        """Raises PermissionDenied if the worker is shut out."""
        if self._strikes.get(worker, 0) >= STRIKES:
            raise PermissionDenied(
                f"{worker} sent {STRIKES} pushes with wrong sizes, values or bases, and is shut out. Its log names "
                "the first of them; a restart of the server lets it in again."
            )

    def strike(self, worker: str) -> None:
        """Counts another bad push."""
        with self._lock:
            self._strikes[worker] = self._strikes.get(worker, 0) + 1
