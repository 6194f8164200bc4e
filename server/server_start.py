"""How a server's present process began: what its chief, its metrics and the run's status tell of it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One start of one server."""

    term: int
    snapshot: int | None = None
    """Version of the snapshot that it went on from (folds); None: there was none."""
    damaged: int = 0
    """Damaged snapshots that it passed over."""
