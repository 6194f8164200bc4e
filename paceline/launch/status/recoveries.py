"""Says what servers came back from, and what workers waited for, sent and computed again because of it."""

from dataclasses import dataclass

from paceline.launch.status.evidence import Counters
from paceline.v1.run_service_pb2 import ServerStatus, StatusReply

REPLAYED, RERUN = "replayed", "rerun"
"""Figures of a worker: pushes that its process has sent again, and clocks that it has computed again."""

REST = 5.0
"""Seconds in which nothing more was done again before it is said; workers report every two seconds."""
PATIENCE = 2.0
"""Seconds that workers wait for others before it is said: after a stop, all come back within a moment."""


@dataclass(slots=True)
class Recovery:
    """What a run's recoveries took so far."""

    servers: int = 0
    """Starts of servers from a snapshot while the run was watched."""
    damaged: int = 0
    """Damaged snapshots that they passed over."""
    replayed: int = 0
    """Pushes that workers sent again."""
    rerun: int = 0
    """Mini-batches that workers computed again."""
    went_back: int = 0
    """Times that all servers went back to a snapshot that they have in common."""
    waited: float = 0.0
    """Time in which workers that were back waited for the others (seconds)."""

    def __str__(self) -> str:
        """In words; empty where nothing was needed."""
        parts = [
            _count(self.servers, "start of a server from its snapshot", "starts of servers from their snapshots"),
            _count(self.replayed, "push sent again", "pushes sent again"),
            _count(self.rerun, "mini-batch computed again", "mini-batches computed again"),
            _count(self.damaged, "damaged snapshot passed over", "damaged snapshots passed over"),
            _count(self.went_back, "time", "times")
            and f"all servers went back {_count(self.went_back, 'time', 'times')}",
            f"workers waited {self.waited:.0f} s for others" if self.waited >= PATIENCE else "",
        ]
        return ", ".join(part for part in parts if part)


class Recoveries:
    """Fed with each status of a run."""

    def __init__(self) -> None:
        self.sum = Recovery()
        self._terms: dict[int, int] = {}
        """The last known start of each server."""
        self._counted = Counters()
        self._told = self._seen = (0, 0)
        """Pushes and mini-batches that were done again: when it was said last, and at the last status."""
        self._since = 0.0
        """When these grew last."""
        self._orders: int | None = None
        """How often all servers had gone back at the last status."""
        self._wait = _Wait()

    def of(self, status: StatusReply, now: float) -> list[str]:
        """Lines on what is new. `now`: seconds on any steady clock."""
        lines = [line for server in status.servers if (line := self._new_start(server))]
        lines += [*self._new_order(status), *self._wait.of(status, now)]
        self.sum.waited = self._wait.seconds
        for worker in status.workers:
            counts = {name: worker.figures[name] for name in (REPLAYED, RERUN) if name in worker.figures}
            self._counted.add(worker.worker, worker.incarnation, counts)
        self.sum.replayed, self.sum.rerun = int(self._counted.total(REPLAYED)), int(self._counted.total(RERUN))
        here = (self.sum.replayed, self.sum.rerun)
        if here != self._seen:
            self._seen, self._since = here, now
        elif here != self._told and now - self._since >= REST:
            lines.append(_again(here[0] - self._told[0], here[1] - self._told[1]))
            self._told = here
        return lines

    def _new_start(self, server: ServerStatus) -> str:
        """What to say of a server's start that was not known."""
        if not server.HasField("start") or self._terms.get(server.server) == server.start.term:
            return ""
        self._terms[server.server] = server.start.term
        self.sum.servers += server.start.is_back
        self.sum.damaged += server.start.damaged
        return start_line(server)

    def _new_order(self, status: StatusReply) -> list[str]:
        """What to say where all servers have gone back since the last status."""
        if self._orders is None:  # what an earlier launch has seen
            self._orders = status.went_back - status.going_back
        more, self._orders = status.went_back - self._orders, status.went_back
        self.sum.went_back += max(0, more)
        return went_back(status) if more > 0 else []


@dataclass(slots=True)
class _Wait:
    """For workers that have not come back yet."""

    seconds: float = 0.0
    """In all."""
    _before: float | None = None
    """When the last status had somebody waiting."""
    _began: float = 0.0
    _told: bool = False
    _is_workers: bool = False
    """Whether workers waited at the last status, and not the end of the run."""

    def of(self, status: StatusReply, now: float) -> list[str]:
        """Lines on it, once when it has lasted for a while, and once when it is over."""
        awaited = status.awaited or status.unfinished
        if self._before is not None:
            self.seconds += (now - self._before) * self._is_workers
        elif awaited:
            self._began = now
        is_over = not awaited and self._before is not None
        self._before = now if awaited else None
        self._is_workers = bool(status.awaited)
        if is_over and self._told:
            self._told = False
            return [f"the wait for other workers is over after {now - self._began:.0f} s"]
        if awaited and not self._told and now - self._began >= PATIENCE:
            self._told = True
            return wait_line(status)
        return []


def wait_line(status: StatusReply) -> list[str]:
    """Says which workers the others, or the end of the run, wait for; nothing where all are back."""
    found = "the run has come back, and its workers wait for the others that it had; missing: "
    if not status.awaited:
        found = "the run waits for workers that have not finished, as the others have (for start_timeout): "
    awaited = status.awaited or status.unfinished
    return [found + ", ".join(awaited)] if awaited else []


def went_back(status: StatusReply) -> list[str]:
    """To which snapshot all servers have gone back, and why; nothing where they have not."""
    if not status.went_back:
        return []
    verb = "go" if status.going_back else "went"
    return [
        f"all servers {verb} back to their common snapshot of version {status.back_to:,}, because a server lacked later rounds "
        "and no worker had all pushes of them any more; workers make up for these rounds"
    ]


def start_line(server: ServerStatus) -> str:
    """What a server came back from; empty where it has just begun."""
    name, start = f"server-{server.server}", server.start
    passed = _count(start.damaged, "damaged snapshot was passed over", "damaged snapshots were passed over")
    if start.is_back:
        return f"{name} went on from its snapshot of version {start.version:,} (term {start.term})" + (
            f"; {passed}" if passed else ""
        )
    if start.term > 1:
        return f"{name} came back without a snapshot (term {start.term}): its slice is trained from the beginning again"
    return ""


def standing_recoveries(status: StatusReply) -> list[str]:
    """For one look: what the present processes came back from, and what they did again."""
    replayed, rerun = (int(sum(each.figures.get(name, 0.0) for each in status.workers)) for name in (REPLAYED, RERUN))
    lines = [line for server in status.servers if (line := start_line(server))]
    lines += [*went_back(status), *wait_line(status)]
    return [*lines, _again(replayed, rerun)] if replayed or rerun else lines


def _again(replayed: int, rerun: int) -> str:
    """What workers did again, and why that changes nothing."""
    parts = (_count(replayed, "push", "pushes"), _count(rerun, "mini-batch", "mini-batches"))
    said = [f"{part} {verb} again" for part, verb in zip(parts, ("sent", "computed"), strict=True) if part]
    return f"workers made up for what servers had lost: {', '.join(said)}"


def _count(number: int, one: str, more: str) -> str:
    return "" if not number else f"{number:,} {one if number == 1 else more}"
