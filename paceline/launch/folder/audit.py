"""What a resume of a run would find: every server's folder is read and checked, and nothing is changed. And how many pushes
that servers had answered are missing there."""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from paceline.core.errors import UsageError
from paceline.core.units import size
from paceline.core.values import worker_order
from paceline.launch.folder.run_folder import RunFolder
from paceline.server.json_files import Owner
from paceline.server.recut_folders import servers_of_run
from paceline.server.state_audit import FolderAudit, audit_folder, check_chief


@dataclass(frozen=True, slots=True)
class WorkerAudit:
    """Where one worker goes on."""

    worker: str
    clocks: dict[str, int]
    """Its pushes in each server's newest intact snapshot."""
    known: int
    """The most that it is known to have done, from snapshots and the run's last status."""

    @property
    def resumes_at(self) -> int:
        """The clock of the slice that is furthest back: all later ones are computed again, and other slices answer those that
        they have."""
        return min(self.clocks.values(), default=0)

    @property
    def again(self) -> int:
        """Clocks that it computes again."""
        return max(0, self.known - self.resumes_at)


@dataclass(slots=True)
class RunAudit:
    """What was found."""

    run: str
    state: str
    """Where the run is, in words."""
    servers: dict[str, FolderAudit]
    workers: list[WorkerAudit] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What does not fit between servers, in sentences."""
    resume: str = ""
    """The command that goes on."""

    @property
    def all_wrong(self) -> list[str]:
        """Everything, each with the server that it is of."""
        return [f"{name}: {each}" for name, found in self.servers.items() for each in found.wrong] + self.wrong

    @property
    def exit_code(self) -> int:
        """0 where nothing is wrong."""
        return 1 if self.all_wrong else 0

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "run": self.run,
            "state": self.state,
            "sound": not self.exit_code,
            "wrong": self.all_wrong,
            "servers": {name: _plain(found) for name, found in self.servers.items()},
            "workers": {
                each.worker: {**asdict(each), "resumes_at": each.resumes_at, "again": each.again}
                for each in self.workers
            },
        }

    def lines(self) -> list[str]:
        """For people."""
        lines = [f"run {self.run} {self.state}"] if self.run else []
        lines += [_server_line(name, found) for name, found in self.servers.items()]
        lines += [_worker_line(each) for each in self.workers]
        lines += [f"wrong: {each}" for each in self.all_wrong]
        if not any(found.newest for found in self.servers.values()):
            lines.append("There is no snapshot that a resume could go on from: it starts from the beginning.")
        elif self.resume:
            again = sum(each.again for each in self.workers)
            what = (
                f"computes {_count(again, 'mini-batch', 'mini-batches')} again" if again else "computes nothing again"
            )
            lines.append(f"A resume {what}: {self.resume}")
        wrong = len(self.all_wrong)
        return [*lines, f"{_count(wrong, 'thing is', 'things are')} wrong." if wrong else "Nothing is wrong."]


def audit_run(folder: RunFolder) -> RunAudit:
    """Of a run whose folder this is; it may be going on. UsageError: it has no servers, which keep its state."""
    config = folder.settings()
    if not config.servers:
        raise UsageError(
            f"Run '{folder.name}' has no servers: its models are in the workers' memory, and nothing is kept."
        )
    count = servers_of_run(folder.path) or config.servers  # the model may still be to be cut for those of the settings
    found = {
        f"server-{index}": audit_folder(folder.server(index), Owner(folder.name, index, count))
        for index in range(count)
    }
    check_chief(found["server-0"])
    is_going = folder.is_driven
    audit = RunAudit(folder.name, _state(folder, is_going), found)
    audit.resume = "" if is_going or folder.facts().get("finished") else folder.again
    last = folder.last_status().get("workers", [])
    audit.workers = _workers(found, {each["worker"]: each["clock"] for each in last})
    audit.wrong = list(_between(found))
    return audit


def audit_server(folder: Path) -> RunAudit:
    """Of one server's folder alone, as on a volume. UsageError: it is none."""
    if not (folder / "term.json").is_file() and not any(folder.glob("snapshot-*")):
        raise UsageError(f"{folder} is neither the folder of a run nor that of a server.")
    found = {folder.name: audit_folder(folder, None)}
    return RunAudit("", "", found, _workers(found, {}))


def _workers(found: dict[str, FolderAudit], last: dict[str, int]) -> list[WorkerAudit]:
    """`last`: each worker's clock in the run's last status."""
    newest = {name: each.newest.clocks for name, each in found.items() if each.newest is not None}
    if not newest:
        return []
    workers = sorted({worker for clocks in newest.values() for worker in clocks}, key=worker_order)
    rows = {worker: {name: clocks.get(worker, 0) for name, clocks in newest.items()} for worker in workers}
    return [WorkerAudit(worker, clocks, max(*clocks.values(), last.get(worker, 0))) for worker, clocks in rows.items()]


def _between(found: dict[str, FolderAudit]) -> Iterable[str]:
    """What does not fit between servers."""
    newest = {name: each.newest for name, each in found.items() if each.newest is not None}
    without = [name for name in found if name not in newest]
    if newest and without:
        yield f"{' and '.join(without)} has no intact snapshot, while others have: its slice would begin from scratch."
    if len(plans := {each.plan for each in newest.values() if each.plan}) > 1:
        yield f"The newest snapshots are cut by {len(plans)} different plans, so they are of different models."


def _state(folder: RunFolder, is_going: bool) -> str:
    facts = folder.facts()
    if is_going:
        return "is going on; what is written meanwhile may be missing here"
    if facts.get("finished"):
        return "is finished"
    code = facts.get("exit_code")
    return "was cut off" if code is None else f"ended with exit code {code}"


def _server_line(name: str, found: FolderAudit) -> str:
    newest = found.newest
    count = _count(len(found.whole) + len(found.damaged), "snapshot", "snapshots")
    intact = f"{len(found.damaged)} damaged" if found.damaged else "all intact"
    if newest is None:
        return f"{name}: {count}, none intact; term {found.term}" if found.damaged else f"{name}: no snapshot"
    buffered = f", {newest.buffered} of them buffered" if newest.buffered else ""
    when = time.strftime("%H:%M:%S", time.localtime(newest.written))
    return (
        f"{name}: version {newest.version:,} with {newest.pushes:,} pushes{buffered}, of {when}, "
        f"{size(newest.bytes)}; {count}, {intact}; the next term is {found.term + 1}"
    )


def _worker_line(each: WorkerAudit) -> str:
    if len(set(each.clocks.values())) == 1:
        where = f"clock {each.resumes_at:,}"
    else:
        where = ", ".join(f"clock {clock:,} in {name}" for name, clock in each.clocks.items())
    again = f"; {_count(each.again, 'mini-batch', 'mini-batches')} up to {each.known:,} again" if each.again else ""
    return f"{each.worker}: {where}{again}"


def _count(number: int, one: str, more: str) -> str:
    return f"{number:,} {one if number == 1 else more}"


def _plain(found: FolderAudit) -> dict[str, Any]:
    return {
        "folder": str(found.folder),
        "term": found.term,
        "snapshots": [asdict(each) for each in found.whole],
        "damaged": {str(number): why for number, why in found.damaged.items()},
        "wrong": found.wrong,
    }


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
