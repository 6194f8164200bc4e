"""A disk on which a server can't keep its state."""

from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence
from paceline.core.run.advice import Advice


class FullDisk(Cause):
    """Evidence: what a server's last try to write a snapshot or the run's state failed with. Training goes on; what the disk
    does not have is lost where the server dies, unless workers still have it."""

    def look(self, evidence: Evidence) -> Finding | None:
        found = [server for server in evidence.servers if server.disk_trouble]
        if not found:
            return None
        names = " and ".join(server.name for server in found)
        why = found[0].disk_trouble.rstrip(".")
        said = (
            f"{names} can't keep what is trained ({why}); training goes on, but a server that dies now comes back older"
        )
        return Finding(1.0, said, Advice("to make room on that disk; snapshots are then written again by themselves"))
