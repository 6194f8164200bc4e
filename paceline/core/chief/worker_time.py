"""Where the time of a run's workers goes, as they report it."""

from collections.abc import Iterable
from dataclasses import dataclass
from statistics import median_low

ENOUGH = 5
"""Steps of each worker below which its times say nothing."""
LEAST = 4.0
"""Training time below which a run in training, a server or a worker is not judged (seconds): two heartbeats."""
Part = str
"""A part of a worker's time: compute, data, exchange or wait."""
OWN: tuple[Part, ...] = ("compute", "data", "exchange")
"""Those that are no waiting for others."""
SPENT = {
    "steps": ("steps",),
    "compute": ("compute_seconds",),
    "data": ("data_seconds",),
    "exchange": ("push_seconds", "pull_seconds", "exchange_seconds"),
    "wait": ("wait_seconds",),
    "squares": ("own_squares",),
    "cpu": ("cpu_seconds",),
    "traffic": ("sent_bytes", "received_bytes"),
}
"""What a worker has spent, and its figures that say it; all of them count on."""


@dataclass(frozen=True, slots=True)
class WorkerTime:
    """Where one worker's time went."""

    name: str
    steps: float = 0.0
    """Pushes completed in that time."""
    compute: float = 0.0
    """Seconds, as the other parts."""
    data: float = 0.0
    exchange: float = 0.0
    """Pushes and pulls, without what the policy let them wait."""
    wait: float = 0.0
    """For others, because of the policy."""
    squares: float = 0.0
    """Of its steps' own times, summed up (seconds squared); 0 where that is not known."""
    cpu: float = 0.0
    """CPU time of its process, all of it (seconds); 0 where it is not known."""
    traffic: float = 0.0
    """Bytes sent and received."""
    staleness: float = 0.0
    """Mean of its pushes (folds)."""
    has_link: bool = False
    """Whether it is known to reach servers over a network: on another machine, or over an emulated link."""
    alpha: float | None = None
    """Mean weight of the global model in its mixes (ratio); None where it is not known."""

    @property
    def own(self) -> float:
        """Seconds in which it did not wait for others."""
        return self.compute + self.data + self.exchange

    @property
    def total(self) -> float:
        return self.own + self.wait

    def each(self, *parts: Part) -> float:
        """Seconds of these parts in a step."""
        return sum(float(getattr(self, part)) for part in parts) / self.steps


def share_of(workers: Iterable[WorkerTime], *parts: Part, within: tuple[Part, ...] = (*OWN, "wait")) -> float:
    """As `Evidence.share`, of some workers."""
    some = list(workers)
    whole = sum(float(getattr(worker, part)) for worker in some for part in within)
    return sum(float(getattr(worker, part)) for worker in some for part in parts) / whole if whole else 0.0


def middle(values: Iterable[float]) -> float:
    """The median, of an even number the lower one of the two in the middle; 0 of none."""
    found = list(values)
    return median_low(found) if found else 0.0
