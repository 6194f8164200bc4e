"""A disk, or an object store, in which a server can't keep its state."""

from paceline.core.chief.advice import Advice
from paceline.core.explain.cause import Cause, Finding
from paceline.core.explain.evidence import Evidence, ServerTime


class FullDisk(Cause):
    """Evidence: what a server's tries to write a snapshot or the run's state failed with, and for how long. The run goes on;
    what the disk does not have is lost where the server dies, unless workers still have it."""

    def look(self, evidence: Evidence) -> Finding | None:
        failed = [server for server in evidence.servers if server.disk_trouble]
        still = [server for server in failed if not server.disk_works]
        if evidence.is_now:
            return _now(still) if still else None
        return _at_the_end(still) if still else _before(failed) if failed else None


def _now(servers: list[ServerTime]) -> Finding:
    said = (
        f"{_names(servers)} can't keep what is trained ({_why(servers)}); the run goes on, but a server that dies now comes "
        "back older"
    )
    return Finding(1.0, said, Advice(f"{_remedy(servers)}; snapshots are then written again by themselves"))


def _at_the_end(servers: list[ServerTime]) -> Finding:
    said = f"{_lasted(servers)}, to the end ({_why(servers)}); the last snapshot is older than the model"
    return Finding(1.0, said, Advice(f"{_remedy(servers)} before you resume the run"))


def _before(servers: list[ServerTime]) -> Finding:
    said = (
        f"{_lasted(servers)} ({_why(servers)}), and then it could again; snapshots of that time are missing, and workers kept "
        "their pushes until there was one again"
    )
    return Finding(0.0, said, Advice(f"{_remedy(servers)} before the next run"))


def _remedy(servers: list[ServerTime]) -> str:
    if "://" in servers[0].disk_trouble:
        return "to let the servers reach that store and write there"
    return "to make room on that disk"


def _lasted(servers: list[ServerTime]) -> str:
    seconds = max(1.0, *(server.disk_seconds for server in servers))
    return f"for {seconds:.0f} s {_names(servers)} could not keep what was trained"


def _names(servers: list[ServerTime]) -> str:
    return " and ".join(server.name for server in servers)


def _why(servers: list[ServerTime]) -> str:
    return servers[0].disk_trouble.rstrip(".")
