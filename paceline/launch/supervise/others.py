"""What the launcher asks of other machines that lend processes to its run; as it is here, none does."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.launch.supervise.children import Child

HERE = "127.0.0.1"


class Others:
    """Processes of a run on other machines. Of the launcher's thread."""

    bind = ""
    """Where this machine's processes listen; empty: on this machine alone."""
    options = ""
    """Of a command line, by which the same machines take part again."""

    def open(self, say: Callable[[str], None]) -> None:
        """The run begins; `say` gets what people should know."""

    def workers_here(self, config: Config) -> int:
        """Returns how many workers this machine starts itself; those of higher ranks are lent."""
        return config.workers

    def workers_on_cores(self, config: Config) -> int:
        """Returns how many workers share out this machine's cores."""
        return self.workers_here(config)

    def servers_here(self, config: Config) -> int:
        """Returns the same of servers; the chief is always here."""
        return config.server_processes

    def told_here(self) -> Mapping[str, Any]:
        """Returns what the launcher tells workers on this machine because there are others."""
        return {}

    def want_workers(self, ranks: range, told: Mapping[str, Any], log: Callable[[str], Path], restarts: int) -> None:
        """From now on hosts that have room get these workers. `told`: what it tells all alike."""

    def lend_server(self, index: int, told: Mapping[str, Any], log: Path, restarts: int) -> Child | None:
        """Returns server `index` on a host that has room, not started yet; None where there is none."""
        return None

    def attend(self, children: list[Child]) -> None:
        """Takes those off the list that went with their host, and puts those on it that have got one."""

    def awaited(self) -> bool:
        """Whether a worker has no host just now, so that another machine may take it."""
        return False

    def waits(self) -> str:
        """Returns what the whole run waits for, in words, where no machine lends a worker; otherwise ''."""
        return ""

    def end(self, code: int, reason: str) -> None:
        """The run is over, and its processes have ended: tells all hosts so."""
