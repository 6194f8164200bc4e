"""What the launcher asks of other machines that lend processes to its run; here the case of a run that has none."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.launch.supervise.children import Child

HERE = "127.0.0.1"


class Others(ABC):
    """Processes of a run on other machines. Of the launcher's thread."""

    bind = ""
    """Where this machine's processes listen; empty: on this machine alone."""
    options = ""
    """Of a command line, by which the same machines take part again."""

    @abstractmethod
    def open(self, say: Callable[[str], None]) -> None:
        """The run begins; `say` gets what people should know."""

    @abstractmethod
    def workers_here(self, config: Config) -> int:
        """Workers that this machine starts itself; those of higher ranks are lent."""

    def workers_on_cores(self, config: Config) -> int:
        """Workers that share out this machine's cores."""
        return self.workers_here(config)

    @abstractmethod
    def servers_here(self, config: Config) -> int:
        """The same of servers; the chief is always here."""

    @abstractmethod
    def told_here(self) -> Mapping[str, Any]:
        """What the launcher tells workers on this machine because there are others."""

    @abstractmethod
    def want_workers(self, ranks: range, told: Mapping[str, Any], log: Callable[[str], Path], restarts: int) -> None:
        """From now on hosts that have room get these workers. `told`: what it tells all alike."""

    @abstractmethod
    def lend_server(self, index: int, told: Mapping[str, Any], log: Path, restarts: int) -> Child | None:
        """Server `index` on a host that has room, not started yet; None where there is none."""

    @abstractmethod
    def attend(self, children: list[Child]) -> None:
        """Takes those off the list that went with their host, and puts those on it that have got one."""

    @abstractmethod
    def awaited(self) -> bool:
        """Whether a worker has no host just now, so that another machine may take it."""

    @abstractmethod
    def waits(self) -> str:
        """What the whole run waits for, in words, where no machine lends a worker; otherwise ''."""

    @abstractmethod
    def end(self, code: int, reason: str) -> None:
        """The run is over, and its processes have ended: tells all hosts so."""


class NoOthers(Others):
    """All processes are on this machine."""

    def open(self, say: Callable[[str], None]) -> None:
        return

    def workers_here(self, config: Config) -> int:
        return config.workers

    def servers_here(self, config: Config) -> int:
        return config.server_processes

    def told_here(self) -> Mapping[str, Any]:
        return {}

    def want_workers(self, ranks: range, told: Mapping[str, Any], log: Callable[[str], Path], restarts: int) -> None:
        return

    def lend_server(self, index: int, told: Mapping[str, Any], log: Path, restarts: int) -> Child | None:
        return None

    def attend(self, children: list[Child]) -> None:
        return

    def awaited(self) -> bool:
        return False

    def waits(self) -> str:
        return ""

    def end(self, code: int, reason: str) -> None:
        return
