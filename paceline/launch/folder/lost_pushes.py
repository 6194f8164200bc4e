"""Counts the pushes that servers had answered and that are missing in their last snapshots."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.launch.folder.audit import audit_run
from paceline.launch.folder.run_folder import RunFolder


@dataclass(frozen=True, slots=True)
class Lost:
    """What is missing in a finished run's snapshots."""

    answered: int
    """Pushes that the chief had answered, times the servers that each of them goes to."""
    pushes: int
    """How many of these are missing."""
    wrong: list[str] = field(default_factory=list)
    """What else is wrong with the snapshots, in sentences."""

    def __str__(self) -> str:
        """In words."""
        told = "".join(f"; {each}" for each in self.wrong)
        if not self.pushes:
            return f"nothing; the servers' last snapshots have all {self.answered:,} acknowledged pushes{told}"
        return f"{self.pushes:,} of {self.answered:,} acknowledged pushes are not in the servers' last snapshots{told}"


def lost_pushes(folder: RunFolder, answered: Mapping[str, int]) -> Lost:
    """Of a run whose servers have ended. `answered`: the newest clock of each worker that the chief is known to have answered.
    A server takes a worker's pushes in order, so it has all of them up to the clock that it has of this worker."""
    found = audit_run(folder)
    clocks = {each.worker: each.clocks for each in found.workers}
    missing = sum(
        max(0, clock - clocks.get(worker, {}).get(server, 0))
        for worker, clock in answered.items()
        for server in found.servers
    )
    return Lost(sum(answered.values()) * len(found.servers), missing, found.all_wrong)
