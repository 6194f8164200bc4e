"""Finds servers of this machine that run and yet don't answer: frozen ones, and ones that hang."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.launch.supervise.children import Child
from paceline.launch.supervise.words_and_ports import ports_of

ASK_EVERY = 1.0
"""Seconds between two questions to one server."""
ANSWER = 2.0
"""Seconds that a server has for one answer; a busy one needs milliseconds, since health has its own port."""
LEAST = 5.0
"""A server is never taken for frozen before it was silent for so long (seconds), however short the lease is."""


class Probe(ABC):
    """One server that can be asked whether it answers."""

    @abstractmethod
    def ask(self) -> None:
        """Begins a question; never blocks."""

    @abstractmethod
    def answer(self) -> bool | None:
        """Whether it answers; None while the question is open."""

    @abstractmethod
    def close(self) -> None: ...


class AskedForHealth(Probe):
    """By gRPC's health service on its own port."""

    def __init__(self, port: int) -> None:
        from grpc import insecure_channel
        from grpc_health.v1.health_pb2_grpc import HealthStub

        self._channel = insecure_channel(
            f"127.0.0.1:{port}", [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        )
        self._health = HealthStub(self._channel)
        self._reply: Any = None

    def ask(self) -> None:
        from grpc_health.v1.health_pb2 import HealthCheckRequest

        self._reply = self._health.Check.future(HealthCheckRequest(), timeout=ANSWER)

    def answer(self) -> bool | None:
        if not self._reply.done():
            return None
        error = self._reply.exception()
        return error is None or "refused" in str(error.details())  # a port that is closed: it is just ending

    def close(self) -> None:
        self._channel.close()


@dataclass(slots=True)
class _Watched:
    """One process."""

    pid: int
    asked: Probe | None = None
    is_open: bool = False
    """Whether a question waits for its answer."""
    since: float = float("-inf")
    """When it was asked last, or looked for."""
    has_answered: bool = False
    silent: float = 0.0
    """Seconds since its last answer in which it could have answered."""


class FrozenServers:
    """Looks after all servers of a launch on this machine. The time is handed in (seconds on any steady clock); time in
    which the launcher itself did not run does not count."""

    def __init__(
        self,
        lease: float,
        report: Callable[[str], Path],
        reach: Callable[[int], Probe] = AskedForHealth,
    ) -> None:
        """`report`: where a server of that name says on which ports it listens; `reach`: how one is asked on that port."""
        self._lease = max(lease, LEAST)
        self._report = report
        self._reach = reach
        self._watched: dict[str, _Watched] = {}

    def look(self, children: Iterable[Child], now: float) -> list[tuple[Child, float]]:
        """Those that have been silent for longer than the lease, with the seconds; each once."""
        found = []
        for child in children:
            if child.role == "server" and child.is_here and child.pid is not None and child.running:
                silent = self._look_at(child.name, child.pid, now)
                if silent > self._lease:
                    self._forget(child.name)
                    found.append((child, silent))
        return found

    def end_frozen(self, children: Iterable[Child], now: float) -> None:
        """Ends these, so that they are started again as after a death."""
        for child, silent in self.look(children, now):
            child.end(f"has not answered for {silent:.0f} s, so it was ended")

    def close(self) -> None:
        """Asks nobody any more."""
        for name in list(self._watched):
            self._forget(name)

    def _look_at(self, name: str, pid: int, now: float) -> float:
        if name not in self._watched or self._watched[name].pid != pid:
            self._forget(name)
            self._watched[name] = _Watched(pid)
        one = self._watched[name]
        if one.is_open and one.asked is not None:
            self._take_answer(one, one.asked, now)
        elif now - one.since >= ASK_EVERY or one.silent:
            self._ask(one, name, now)
        return one.silent

    def _ask(self, one: _Watched, name: str, now: float) -> None:
        one.since = now
        if one.asked is None:
            ports = ports_of(self._report(name), one.pid) or {}
            one.asked = self._reach(ports["health_port"]) if ports.get("health_port") else None
        if one.asked is not None:
            one.asked.ask()
            one.is_open = True

    @staticmethod
    def _take_answer(one: _Watched, asked: Probe, now: float) -> None:
        answer = asked.answer()
        if answer is None:
            return
        one.is_open = False
        if answer:
            one.has_answered, one.silent = True, 0.0
        elif one.has_answered:
            one.silent += min(now - one.since, ANSWER + ASK_EVERY)

    def _forget(self, name: str) -> None:
        if (one := self._watched.pop(name, None)) is not None and one.asked is not None:
            one.asked.close()
