"""Who lends workers and servers to a run, and what each machine is to do: the head's side, without sockets.

Both sides say their whole state each time, so that anything that got lost is said again."""

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.core.errors import PoolFull, Stopped, UsageError
from paceline.launch.folder.own_records import append
from paceline.launch.other_machines.process_arguments import arguments_message
from paceline.rpc.enums import number_of
from paceline.v1 import host_service_pb2 as pb

LOST = 10.0
"""A host that is silent for so long counts as dead (seconds)."""
PARTS = ("worker", "server")


@dataclass(slots=True)
class RemoteProcess:
    """One name on one host: what it is to do, and what the host says of it."""

    name: str
    role: str
    told: Mapping[str, Any]
    """What the head tells the process, besides what its host knows."""
    log: Path
    """Where what it writes is put on this machine."""
    start: int = 0
    """How often the host must start it."""
    signal: int = 0
    running: int = 0
    """The start that the host has made."""
    pid: int | None = None
    code: int | None = None
    ended: str = ""
    lacked_memory: bool = False
    port: int = 0
    log_size: int = 0

    def order(self) -> pb.ChildOrder:
        return pb.ChildOrder(
            name=self.name,
            start=self.start,
            role=number_of(pb.ProcessRole.DESCRIPTOR, self.role),
            arguments=arguments_message(self.role, self.told),
            signal=self.signal,
            log_size=self.log_size,
        )

    def note(self, said: pb.ChildReport) -> None:
        """Takes in what the host says of it; what is known already is left out."""
        new = said.log[max(0, self.log_size - said.log_from) :] if said.log_from <= self.log_size else b""
        if new:
            with suppress(OSError):  # the launcher says that its disk fails
                make_private(self.log.parent)
                append(self.log, new)
            self.log_size += len(new)
        if said.start != self.start:
            return
        self.running = said.start
        self.pid = said.pid or None
        self.port = said.port
        if said.HasField("code"):
            self.code = said.code
            self.ended = said.ended
            self.lacked_memory = said.lacked_memory


@dataclass(slots=True)
class Host:
    """A machine that has joined."""

    number: int
    name: str
    address: str
    room: dict[str, int]
    """How many workers and servers it takes."""
    seen: float
    processes: dict[str, RemoteProcess] = field(default_factory=dict)
    leaving: bool = False
    lost: bool = False
    trouble: str = ""
    """What keeps it from starting workers, in its words."""
    told: str = ""
    """What of that has been said here."""

    @property
    def is_there(self) -> bool:
        return not self.leaving and not self.lost

    def free(self, role: str) -> int:
        """How many more it takes."""
        taken = sum(process.role == role for process in self.processes.values())
        return max(0, self.room[role] - taken) if self.is_there else 0


class Hosts:
    """All of them. Thread-safe. `now`: seconds on a steady clock."""

    def __init__(self, run: str, wanted: Mapping[str, int], now: Callable[[], float]) -> None:
        """`wanted`: how many workers and servers are to come from other machines."""
        self._run = run
        self._wanted = dict(wanted)
        self._now = now
        self._lock = threading.RLock()
        self._hosts: dict[int, Host] = {}
        self._came: list[Host] = []
        self._over: tuple[int, str] | None = None

    # what hosts say
    def join(self, name: str, workers: int, servers: int, address: str) -> Host:
        """A machine comes. UsageError: it offers nothing; PoolFull: nothing of what it offers is wanted; Stopped: too late."""
        with self._lock:
            if self._over is not None:
                raise Stopped(
                    f"Run '{self._run}' is over ({self._over[1] or 'finished'}); no machine can join it any more."
                )
            if not workers and not servers:
                raise UsageError(
                    "This machine offers 0 workers and 0 servers. Say how many it should lend with -w and -s."
                )
            if not any(self._wanted.values()):
                raise PoolFull(f"Run '{self._run}' needs no other machines: --here starts all of its workers.")
            vacant = {role: self._vacant(role) for role in PARTS}
            if not any(vacant[role] and room for role, room in zip(PARTS, (workers, servers), strict=True)):
                raise PoolFull(
                    f"Run '{self._run}' has no free seat for this machine: other machines already lend the "
                    f"{lent(*self._wanted.values())} that it needs. Start the run with more workers (-w), or join "
                    "after a machine has left."
                )
            host = Host(
                max(self._hosts, default=0) + 1,
                self._unique(name),
                address,
                {"worker": workers, "server": servers},
                self._now(),
            )
            self._hosts[host.number] = host
            self._came.append(host)
            return host

    def report(self, request: pb.HostServiceReportRequest) -> pb.HostServiceReportReply:
        """A host says how its processes are, and learns what they must be."""
        with self._lock:
            host = self._hosts.get(request.host)
            if host is None or host.lost:
                code, reason = self._over or (0, "")
                return pb.HostServiceReportReply(
                    is_unknown=True, is_over=self._over is not None, exit_code=code, reason=reason
                )
            host.seen = self._now()
            host.leaving = host.leaving or request.leaving
            host.trouble = request.trouble
            for said in request.children:
                if (process := host.processes.get(said.name)) is not None:
                    process.note(said)
            reply = pb.HostServiceReportReply(children=[process.order() for process in host.processes.values()])
            if self._over is not None:
                reply.is_over = True
                reply.exit_code, reply.reason = self._over
                host.lost = all(process.code is not None for process in host.processes.values())
            return reply

    def heard(self, number: int) -> None:
        """The host lives: it fetches files, or sends some."""
        with self._lock:
            if (host := self._hosts.get(number)) is not None:
                host.seen = self._now()

    # what the launcher wants
    def allot(self, role: str, name: str, told: Mapping[str, Any], log: Path) -> tuple[Host, RemoteProcess] | None:
        """Room for one more process, on the host with most of it; None where there is none."""
        with self._lock:
            best = max(self._hosts.values(), key=lambda host: host.free(role), default=None)
            if best is None or not best.free(role):
                return None
            process = RemoteProcess(name, role, told, log)
            best.processes[name] = process
            return best, process

    def change(self, process: RemoteProcess, signal: int = 0) -> None:
        """Starts it once more, or sends it a signal."""
        with self._lock:
            if signal:
                process.signal = signal
                return
            process.start += 1
            process.signal = 0
            process.code = None

    def came(self) -> list[Host]:
        """Those who have joined since the last call."""
        with self._lock:
            found, self._came = self._came, []
            return found

    def gone(self) -> list[Host]:
        """Those who are found dead now, each once: what they had is vacant again."""
        with self._lock:
            found = [host for host in self._hosts.values() if not host.lost and self._now() - host.seen > LOST]
            for host in found:
                host.lost = True
            return found

    def troubles(self) -> list[tuple[str, str]]:
        """Host and words of each that is new."""
        with self._lock:
            found = [host for host in self._hosts.values() if host.is_there and host.trouble != host.told]
            for host in found:
                host.told = host.trouble
            return [(host.name, host.trouble) for host in found if host.trouble]

    def is_full(self) -> bool:
        """Whether machines lend all that is wanted."""
        with self._lock:
            return not any(self._vacant(role) for role in PARTS)

    def has_come(self, name: str) -> bool:
        """Whether a machine of that name has ever joined."""
        with self._lock:
            return any(host.name == name for host in self._hosts.values())

    def forget(self, host: Host, name: str) -> None:
        """The process is none of this host's any more."""
        with self._lock:
            host.processes.pop(name, None)

    def end(self, code: int, reason: str) -> None:
        """The run is over: every host that asks learns it."""
        with self._lock:
            self._over = (code, reason)

    @property
    def there(self) -> list[Host]:
        """Those that have neither gone nor heard that the run is over."""
        with self._lock:
            return [host for host in self._hosts.values() if not host.lost]

    def _vacant(self, role: str) -> int:
        taken = sum(host.room[role] for host in self._hosts.values() if host.is_there)
        return max(0, self._wanted[role] - taken)

    def _unique(self, name: str) -> str:
        return unique(name, (host.name for host in self._hosts.values() if host.is_there))


def lent(workers: int, servers: int) -> str:
    """'2 workers and 1 server'."""
    counted = [
        f"{count} {role}{'s' * (count != 1)}" for role, count in (("worker", workers), ("server", servers)) if count
    ]
    return " and ".join(counted) or "nothing"


def unique(name: str, taken: Iterable[str]) -> str:
    """The name, with a number where another one has it."""
    known, found, number = set(taken), name, 1
    while found in known:
        number += 1
        found = f"{name}-{number}"
    return found
