"""A run whose processes are on several machines, as its launcher sees it: hosts that come, go and die. It says when there is no
worker on any of them, and ends when none has come for too long."""

import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.core.errors import ServersGone
from paceline.core.settings.config import Config
from paceline.launch.other_machines.hosts import LOST, Host, Hosts, RemoteProcess, lent
from paceline.launch.supervise.children import Child
from paceline.launch.supervise.others import Others
from paceline.rpc.listening import EVERYWHERE, with_port

_SLICE_GONE = "was lost with its host and its slice of the model, so that the run has to be started over (--fresh)"
FAREWELL = 5.0
"""Longest that the head waits for hosts to hear that the run is over (seconds)."""
SAID_EVERY = 60.0
"""Seconds between two words on there being no worker."""


class RemoteChild(Child):
    """One process and its successors under the same name on one host."""

    def __init__(self, hosts: Hosts, host: Host, process: RemoteProcess, restarts: int) -> None:
        super().__init__(
            name=process.name,
            role=process.role,
            arguments=[],
            log=process.log,
            environment={},
            restarts_left=restarts,
        )
        self.on = host
        self._hosts = hosts
        self._at = process

    @property
    def is_here(self) -> bool:
        return False

    def start(self) -> None:
        """Asks its host for a new process."""
        self._log_start = self.log.stat().st_size if self.log is not None and self.log.exists() else 0
        self.code = None
        self._hosts.change(self._at)

    @property
    def pid(self) -> int | None:
        return self._at.pid

    @property
    def listens_at(self) -> str:
        is_known = self._at.port and self._at.running == self._at.start
        return with_port(self.on.address, self._at.port) if is_known else ""

    @property
    def running(self) -> bool:
        return self.poll() is None

    def poll(self) -> int | None:
        if self.code is None:
            self.code = self._at.code
        return self.code

    def lost(self, code: int, words: str) -> None:
        """Its host will say nothing of it any more."""
        self.code = code
        self._at.ended = words

    def signal(self, number: int) -> None:
        if self.running:
            self._hosts.change(self._at, int(number))

    @property
    def lacked_memory(self) -> bool:
        return self._at.lacked_memory

    def how_it_ended(self) -> str:
        return f"on {self.on.name} {self._at.ended}"


class LentProcesses(Others):
    """Others that have come in by the door."""

    def __init__(
        self,
        hosts: Hosts,
        *,
        workers_here: int,
        servers_here: int,
        address: str,
        command: str,
        name: str,
        limit: float,
        now: Callable[[], float] = time.monotonic,
        also: Sequence[Callable[[], Sequence[str]]] = (),
        options: str = "",
    ) -> None:
        """`address`: of this machine; `command`: what people type on others; `limit`: the run ends when no worker has been
        there for so long (seconds); `also`: looked at each time, like ssh, with lines to say; `options`: as in Others."""
        self.options = options
        self.bind = EVERYWHERE
        self._hosts = hosts
        self._workers_here = workers_here
        self._servers_here = servers_here
        self._address = address
        self._command = command
        self._name = name
        self._now = now
        self._nobody = NobodyThere(limit, command)
        self._also = also
        self._say: Callable[[str], None] = print
        self._vacant: dict[int, RemoteChild | None] = {}
        """Ranks without a host, with the child that ran there last."""
        self._told: Mapping[str, Any] = {}
        self._log: Callable[[str], Path] = Path
        self._restarts = 0

    def open(self, say: Callable[[str], None]) -> None:
        self._say = say
        say(f"Other machines lend their workers to this run by this command:\n    {self._command}")

    def workers_here(self, config: Config) -> int:
        return self._workers_here

    def servers_here(self, config: Config) -> int:
        return self._servers_here

    def told_here(self) -> Mapping[str, Any]:
        return {"peer_host": self._address, "host": self._name}

    def want_workers(self, ranks: range, told: Mapping[str, Any], log: Callable[[str], Path], restarts: int) -> None:
        self._vacant = dict.fromkeys(ranks)
        self._told = told
        self._log = log
        self._restarts = restarts

    def lend_server(self, index: int, told: Mapping[str, Any], log: Path, restarts: int) -> Child | None:
        self._greet()
        found = self._hosts.allot("server", f"server-{index}", {**told, "index": index}, log)
        if found is None:
            return None
        self._say(f"server-{index} is on host {found[0].name} ({found[0].address})")
        return RemoteChild(self._hosts, *found, restarts)

    def attend(self, children: list[Child]) -> None:
        for look in self._also:
            for line in look():
                self._say(line)
        self._greet()
        for name, trouble in self._hosts.troubles():
            self._say(f"host {name} says: {trouble}")
        for host in self._hosts.gone():
            self._bury(host, children)
        for child in [each for each in children if isinstance(each, RemoteChild) and each.on.leaving]:
            if child.poll() is not None and not child.is_done and child.role == "worker":
                self._vacate(child, children)
        for rank in sorted(self._vacant):
            self._fill(rank, children)
        if self._told:
            self._look_for_workers(children)

    def awaited(self) -> bool:
        return bool(self._vacant)

    def waits(self) -> str:
        return self._nobody.waits()

    def end(self, code: int, reason: str) -> None:
        self._hosts.end(code, reason)
        end = time.monotonic() + FAREWELL
        while self._hosts.there and time.monotonic() < end:
            time.sleep(0.05)
            self._hosts.gone()

    def _look_for_workers(self, children: list[Child]) -> None:
        """Says where there is none; ServersGone when that has lasted too long."""
        workers = [child for child in children if child.role == "worker"]
        is_over = any(child.is_done for child in workers)  # they end well only with the run
        is_there = not self._vacant or is_over or any(child.running for child in workers)
        if told := self._nobody.check(is_there, self._now()):
            self._say(told)

    def _greet(self) -> None:
        for host in self._hosts.came():
            room = lent(host.room["worker"], host.room["server"])
            self._say(f"host {host.name} ({host.address}) has joined; it lends {room}")

    def _bury(self, host: Host, children: list[Child]) -> None:
        """The host is dead: other machines may have its workers, a server of it is gone for good."""
        mine = [child for child in children if isinstance(child, RemoteChild) and child.on is host and child.running]
        names = ", ".join(child.name for child in mine) or "nothing"
        what = f"host {host.name} ({host.address}) has not answered for {LOST:.0f} s; {names} went with it."
        workers = [child for child in mine if child.role == "worker"]
        self._say(f"{what} Another machine may take their place: {self._command}" if workers else what)
        for child in mine:
            child.lost(-signal.SIGKILL, _SLICE_GONE)
            child.never_again()
        for child in workers:
            self._vacate(child, children)

    def _vacate(self, child: RemoteChild, children: list[Child]) -> None:
        self._hosts.forget(child.on, child.name)
        children.remove(child)
        self._vacant[int(child.name.rpartition("-")[2])] = child

    def _fill(self, rank: int, children: list[Child]) -> None:
        """Starts the worker where there is room."""
        name = f"worker-{rank}"
        found = self._hosts.allot("worker", name, {**self._told, "rank": rank}, self._log(name))
        if found is None:
            return
        before = self._vacant.pop(rank)
        child = RemoteChild(self._hosts, *found, self._restarts)
        children.append(child)
        child.start()
        if before is not None:
            self._say(f"{name} goes on on host {child.on.name} ({child.on.address})")


class NobodyThere:
    """Fed at every look; time (seconds on any steady clock) is handed in."""

    def __init__(self, limit: float, command: str) -> None:
        """`limit`: `start_timeout`; `command`: what people type on another machine."""
        self._limit = limit
        self._command = command
        self._since: float | None = None
        self._said = 0.0
        self._there = False
        """Whether there was ever a worker."""

    def check(self, is_there: bool, now: float) -> str | None:
        """What to tell people, if it is time to. `is_there`: whether any worker runs. ServersGone: nobody has come for too
        long."""
        if is_there:
            self._since, self._there = None, True
            return None
        if self._since is None:
            self._since = self._said = now
            return self._waits(0) if self._there else None
        waited = now - self._since
        if waited >= self._limit:
            raise ServersGone(
                f"{self._what} for {waited:.0f} s (start_timeout), so the run has ended. To resume it from its "
                "last snapshot, repeat its command with --run NAME, and join it again. To wait longer, add --set "
                "start_timeout=SECONDS."
            )
        if now - self._said < SAID_EVERY:
            return None
        self._said = now
        return self._waits(waited)

    def waits(self) -> str:
        """What the run waits for now; '' while there is somebody."""
        return "" if self._since is None else f"{self._what}; it waits {self._limit:.0f} s for one (start_timeout)"

    @property
    def _what(self) -> str:
        return f"no machine {'is left that' if self._there else 'has come that'} lends workers to this run"

    def _waits(self, waited: float) -> str:
        since = f" for {waited:.0f} s" if waited else ""
        left = self._limit - waited
        return f"{self._what}{since}; it waits another {left:.0f} s for one: {self._command}"
