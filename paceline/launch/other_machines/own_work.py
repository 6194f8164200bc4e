"""The processes that a host runs for the head: made from the head's orders, started, watched and reported."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.core.settings.config import Config
from paceline.launch.forks.forker import Forker
from paceline.launch.other_machines.packed_files import GIVEN, SETTINGS
from paceline.launch.other_machines.process_arguments import arguments_value
from paceline.launch.other_machines.reach_servers import ReachServers
from paceline.launch.supervise.children import Child, end_all
from paceline.launch.supervise.frozen_servers import AskedForHealth, FrozenServers, Probe
from paceline.launch.supervise.script_processes import script_environment, script_words
from paceline.launch.supervise.words_and_ports import ports_of, server_words, worker_words
from paceline.launch.this_machine.child_environment import child_environment
from paceline.launch.this_machine.free_ports import FreePorts
from paceline.launch.this_machine.processors import VISIBLE, visible_gpus
from paceline.rpc.enums import value_of
from paceline.rpc.listening import EVERYWHERE, LOOPBACK, bracketed
from paceline.rpc.token_file import write_token_file
from paceline.v1 import host_service_pb2 as pb
from paceline.worker.command_line import ToldLaunched

LOG_PART, LOG_PARTS = 256 << 10, 4 << 20
"""Most of a log, and of all logs, in one report (bytes): the head takes 8 MiB at a time."""
_PORTS = {"server": ("port", "lane_port"), "worker": ("peer_port",)}
"""What each listens on."""
HEAD = f"{LOOPBACK}:"
"""How the head calls itself in addresses."""


@dataclass(slots=True)
class _Process:
    child: Child
    start: int
    report: Path
    told: dict[str, Any]
    signal: int = 0
    port: int = 0
    """Where a server listens, once it does."""
    sent: int = 0
    """How much of its log the head has (bytes)."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What all processes of this host share."""

    folder: Path
    """Only this host's: files, keys, logs, copies of shards."""
    config: Config
    head: str
    """IP of the head, as this host sees it."""
    address: str
    """Under which others reach this host."""
    name: str
    device: str
    threads: int
    """Of each worker."""
    forkers: Mapping[str, Forker] = field(default_factory=dict)


class OwnWork:
    """What this host runs. Of one thread, that lives as long as the host."""

    def __init__(
        self, place: HostFacts, say: Callable[[str], None], reach: Callable[[int], Probe] = AskedForHealth
    ) -> None:
        """`reach`: how a server of this host is asked whether it is frozen."""
        self._place = place
        self._say = say
        self._frozen = FrozenServers(place.config.lease, self._ports_file, reach)
        self._processes: dict[str, _Process] = {}
        self._environment = child_environment(place.threads)
        self._ports = FreePorts(place.config.ports)
        self._reach: ReachServers | None = None
        self._gpus: dict[str, str] = {}
        """The GPU of each worker."""
        self.models = place.folder / "models"
        """Where a script's worker writes the model that the run ends with."""
        make_private(self.models)

    def carry_out(self, orders: Iterable[pb.ChildOrder]) -> None:
        """Starts what must run, passes signals on, ends what must not run any more."""
        wanted = {order.name: order for order in orders}
        for name in [name for name in self._processes if name not in wanted]:
            end_all([self._processes.pop(name).child])
        for order in wanted.values():
            found = self._processes.get(order.name)
            if order.start and (found is None or order.start > found.start) and self._is_ready(order):
                found = self._started(order, found)
            if found is None:
                continue
            found.sent = order.log_size
            if order.signal and order.signal != found.signal:
                found.signal = order.signal
                found.child.signal(order.signal)

    def note(self, orders: Iterable[pb.ChildOrder]) -> None:
        """Learns how much of the logs the head has, and no more."""
        for order in orders:
            if (found := self._processes.get(order.name)) is not None:
                found.sent = order.log_size

    def reports(self) -> list[pb.ChildReport]:
        """How all of them are; a frozen server is ended, so that the head starts it again."""
        self._frozen.end_frozen([process.child for process in self._processes.values()], time.monotonic())
        return [self._report(process) for process in self._processes.values()]

    @property
    def is_told(self) -> bool:
        """Whether the head has all that was written, as far as is known."""
        return all(_size(process.child.log) <= process.sent for process in self._processes.values())

    def end(self, hurry: Callable[[], bool] = lambda: False) -> None:
        """No process is left after this."""
        self._frozen.close()
        end_all([process.child for process in self._processes.values()], hurry)

    @property
    def reach(self) -> ReachServers | None:
        """Whether the run's servers can be reached; None before a worker is to start."""
        return self._reach

    def _is_ready(self, order: pb.ChildOrder) -> bool:
        """Whether a start would not wait, while the head hears nothing of this host, and reaches the servers."""
        role = value_of(order, "role")
        forker = self._place.forkers.get(role)
        if role == "worker" and self._reach is None:
            there = self._there(arguments_value(order))
            self._reach = ReachServers([each for all_ in there.values() for each in all_.split(",")])
        reached = role != "worker" or (self._reach is not None and self._reach.is_done)
        return reached and (forker is None or forker.is_ready)

    def _there(self, told: Mapping[str, Any]) -> dict[str, str]:
        """Where others listen, as this host reaches them."""
        head = f"{bracketed(self._place.head)}:"
        return {key: told[key].replace(HEAD, head) for key in ("servers", "shard_server", "chief") if told.get(key)}

    def _started(self, order: pb.ChildOrder, before: _Process | None) -> _Process:
        role = value_of(order, "role")
        told = {**arguments_value(order), **(self._ports_of(role) if before is None else _ports(before.told))}
        report = self._ports_file(order.name)
        report.unlink(missing_ok=True)
        arguments, environment = self._words(order, told, report)
        log = self._place.folder / "logs" / f"{order.name}.log"
        child = Child(order.name, role, arguments, log, environment, 0, self._place.forkers.get(role))
        child.start()
        again = " again" if order.start > 1 else ""
        self._say(f"{order.name} is started{again} (process {child.pid})")
        found = _Process(child, order.start, report, told)
        self._processes[order.name] = found
        return found

    def _ports_file(self, name: str) -> Path:
        """Where that process says on which ports it listens."""
        return self._place.folder / "ports" / f"{name}.json"

    def _words(self, order: pb.ChildOrder, told: dict[str, Any], report: Path) -> tuple[list[str], Mapping[str, str]]:
        """What follows `python -P`, and the environment."""
        place = self._place
        given = place.folder / GIVEN
        settings = given if place.config.is_script and given.exists() else place.folder / SETTINGS
        token = place.folder / "tokens" / order.name
        make_private(token.parent)
        write_token_file(token, order.token)
        bind = LOOPBACK if place.address == LOOPBACK else EVERYWHERE
        shared = {"config": settings, "token_file": token, "report": report, "bind": bind}
        there = self._there(told)
        if value_of(order, "role") == "server":
            own = {"folder": place.folder / order.name, "index": told["index"], **_ports(told)}
            make_private(own["folder"])
            return server_words({**own, "chief": there["chief"], **shared}), self._environment
        own = {
            "rank": told["rank"],
            "threads": place.threads,
            "device": place.device,
            "peer_host": place.address,
            **_ports(told),
            "host": place.name,
            "residuals": place.folder / "residuals",
            "shards": place.folder / "copies" / order.name,
        }
        environment = {**self._environment, **self._gpu(order.name)}
        told = {"shard_server": "", **there, **own, **shared}
        if place.config.is_script:
            told["models"] = self.models
            words = script_words(place.config.task, place.config)
            return words, script_environment(environment, ToldLaunched(**told))
        return worker_words(told), environment

    def _ports_of(self, role: str) -> dict[str, int]:
        """Those that a process listens on, at each of its starts. ConfigError: there are not as many."""
        return {name: self._ports.take() for name in _PORTS[role]}

    def _gpu(self, name: str) -> dict[str, str]:
        """Of several GPUs another one for each worker here, whatever its rank is."""
        there = visible_gpus(os.environ, Path("/dev"))
        if self._place.device != "auto" or len(there) < 2:
            return {}
        taken = {each for one, each in self._gpus.items() if one != name}
        self._gpus.setdefault(name, next((each for each in there if each not in taken), there[len(taken) % len(there)]))
        return {VISIBLE: self._gpus[name]}

    def _report(self, process: _Process) -> pb.ChildReport:
        child = process.child
        code, size = child.poll(), _size(child.log)
        new = b""
        if child.log is not None and size > process.sent:
            with child.log.open("rb") as log:
                log.seek(process.sent)
                new = log.read(min(LOG_PART, LOG_PARTS // len(self._processes)))
        if not process.port and child.role == "server" and (ports := ports_of(process.report, child.pid)):
            process.port = process.told["port"] = ports["port"]
        said = pb.ChildReport(
            name=child.name,
            start=process.start,
            pid=child.pid or 0,
            log_from=process.sent,
            log=new,
            port=process.port,
        )
        if code is not None and process.sent + len(new) >= size:
            said.code = code
            said.ended = child.how_it_ended()
            said.lacked_memory = child.lacked_memory
        return said


def _ports(told: Mapping[str, Any]) -> dict[str, int]:
    """The ports that the head names."""
    return {name: told[name] for names in _PORTS.values() for name in names if name in told}


def _size(log: Path | None) -> int:
    return log.stat().st_size if log is not None and log.exists() else 0
