"""What a plan's table consists of: where the processes will run, and what each way to run would give there."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline_studies.planning.choices import Choice
from paceline_studies.planning.prices import Prices

UNLIMITED = "1000Gbit"
"""The link of processes that share a machine: what it takes them to talk was measured."""


@dataclass(frozen=True, slots=True)
class Site:
    """Where the processes will run, and for what."""

    bandwidth: float
    """Of a machine's link, each way (bit/s)."""
    link: str = UNLIMITED
    """As the simulator takes it: bandwidth and latency."""
    cores: int | None = None
    """Of the one machine that all share; None: each worker and server has its own machine."""
    free: int = 0
    """Memory of that machine (bytes)."""
    speeds: str = "HO"
    """How the workers' speeds differ."""
    prices: Prices | None = None

    def text(self) -> str:
        """In words."""
        if self.cores is None:
            link = self.link.replace(",", " and ")
            return f"each worker and server on its own machine like this one, with a link of {link}"
        return f"all processes on this machine with its {self.cores} core{'s' * (self.cores > 1)}"


@dataclass(frozen=True, slots=True)
class Row:
    """What one way to run would give."""

    choice: Choice
    throughput: float
    """Examples of all workers together (1/s)."""
    ceiling: float | None
    """What the links allow of that; None where all share a machine."""
    staleness: float
    """Mean over all pushes (folds by others)."""
    most_stale: float
    waiting: float
    """Share of the workers' time in which the policy has them wait for others (ratio)."""
    seconds: float
    """To the end of the run's epochs, without the start of the processes and the last scores."""
    full: str = ""
    """What is full and so sets the pace: 'cores', 'links', 'servers', or ''."""
    cost: float | None = None
    """In the currency of the prices."""
    lacks: str = ""
    """Why this machine can't run it, in words; '' where it can."""

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        own: Mapping[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "choice"}
        choice = self.choice
        return {"policy": choice.policy, "workers": choice.workers, "servers": choice.servers, **own}
