"""Workers that push what can't be right, again and again, are shut out: something is broken there."""

import threading

from paceline.core.errors import PermissionDenied

STRIKES = 10
"""Refused pushes of one worker after which it may push no more."""


class Quarantine:
    """Counts poison for each worker; a restart of the server forgets. Thread-safe."""

    def __init__(self) -> None:
        self._strikes: dict[str, int] = {}
        self._lock = threading.Lock()

    def check(self, worker: str) -> None:
        """PermissionDenied where the worker is shut out."""
        if self._strikes.get(worker, 0) >= STRIKES:
            raise PermissionDenied(
                f"{worker} sent {STRIKES} pushes with wrong sizes, values or bases, and is shut out. Its log names "
                "the first of them; a restart of the server lets it in again."
            )

    def strike(self, worker: str) -> None:
        """One more bad push."""
        with self._lock:
            self._strikes[worker] = self._strikes.get(worker, 0) + 1
