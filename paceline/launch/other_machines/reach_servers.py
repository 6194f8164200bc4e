"""Whether this machine reaches the run's servers: a firewall lets the head's port in, and none of theirs."""

import socket
import threading
import time
from collections.abc import Callable, Sequence

PATIENCE = 5.0
"""Longest that a server may take to accept a connection (seconds)."""
_PAUSE = 1.0
_TODO = (
    "Does a firewall let these ports in? `--set ports=7100-7119` on the head says which ports they are "
    "(docs/run/several-machines.md, Ports and firewalls)."
)


class ReachServers:
    """Tries until all have accepted a connection, in its own thread."""

    def __init__(self, addresses: Sequence[str], todo: str = _TODO, now: Callable[[], float] = time.monotonic) -> None:
        """`addresses`: host:port of each; `todo`: what helps where one can't be reached."""
        self._left = list(addresses)
        self._todo = todo
        self._now = now
        self._since = now()
        self._why = ""
        threading.Thread(target=self._work, name="reach-servers", daemon=True).start()

    @property
    def is_done(self) -> bool:
        """Whether all of them have been reached."""
        return not self._left

    @property
    def waited(self) -> float:
        """How long it has been tried (seconds)."""
        return 0.0 if self.is_done else self._now() - self._since

    @property
    def trouble(self) -> str:
        """What can't be reached, and what to do; '' as long as there is no such."""
        if self.is_done or not self._why:
            return ""
        return (
            f"the run's servers at {', '.join(self._left)} can't be reached from here ({self._why}), so no worker trains. "
            f"{self._todo}"
        )

    def _work(self) -> None:
        while self._left:
            for address in list(self._left):
                if self._is_open(address):
                    self._left.remove(address)
            if self._left:
                time.sleep(_PAUSE)

    def _is_open(self, address: str) -> bool:
        host, _, port = address.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), PATIENCE):
                return True
        except OSError as error:
            self._why = error.strerror or str(error) or type(error).__name__
            return False
