"""What a worker or the evaluator is and has found, for all its parts."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry

from paceline.core.settings.config import Config
from paceline.rpc.auth import OPEN, Credentials
from paceline.rpc.outages import Outages
from paceline.worker.parting import Parting


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a worker or the evaluator is and has found."""

    config: Config
    name: str
    addresses: Sequence[str]
    """host:port of each server, in order; without servers the chief's."""
    credentials: Credentials = OPEN
    stop: threading.Event = field(default_factory=threading.Event)
    """Set by a stop signal: it ends all waiting."""
    say: Callable[..., None] = lambda event, **facts: None
    """Writes an event with its facts to the log."""
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    """The metrics that Prometheus reads."""
    host: str = ""
    """What this machine is called in the run's status; empty: it is not said."""
    residuals: Path | None = None
    """Folder for what pushes have left out, so that it outlives the process (see docs/choose/codecs.md)."""
    patience: float = 0.0
    """How long a call that nobody answers is repeated (seconds); 0: the config's `deadline`."""
    outages: Outages = field(init=False)
    """Calls of this process that keep failing."""
    parting: Parting = field(init=False)
    """What this process still does after a stop signal."""

    def __post_init__(self) -> None:
        if not self.patience:
            object.__setattr__(self, "patience", self.config.deadline)
        object.__setattr__(self, "outages", Outages(self.say))
        object.__setattr__(self, "parting", Parting(self.stop, self.config.servers > 0))


def rank_of(name: str) -> int:
    """The number in a worker's name; 0 where it has none."""
    number = name.rpartition("-")[2]
    return int(number) if number.isdecimal() else 0
