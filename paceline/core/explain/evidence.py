"""What a run has said about itself, as plain values: what causes are judged by."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline.core.chief.warnings import RunWarning
from paceline.core.chief.worker_time import OWN, Part, WorkerTime, middle, share_of
from paceline.core.settings.config import Config


@dataclass(frozen=True, slots=True)
class ServerTime:
    """What one server did."""

    name: str
    seconds: float = 0.0
    busy: float = 0.0
    """CPU time (seconds)."""
    pushes: float = 0.0
    slice_bytes: int = 0
    disk_trouble: str = ""
    """Why a try to write has failed, the last one that did; empty where none has."""
    disk_seconds: float = 0.0
    """Training time in which it could not write (seconds)."""
    disk_works: bool = True
    """Whether it can write in the end."""

    @property
    def load(self) -> float:
        """CPU time by time (ratio); several threads may make it more than 1."""
        return self.busy / self.seconds if self.seconds else 0.0

    @property
    def service(self) -> float:
        """CPU time for a push (seconds)."""
        return self.busy / self.pushes if self.pushes else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run, or the last seconds of one that is training."""

    config: Config
    seconds: float = 0.0
    """Training time that is looked at."""
    workers: tuple[WorkerTime, ...] = ()
    """Those that have made enough steps in it."""
    servers: tuple[ServerTime, ...] = ()
    warnings: tuple[RunWarning, ...] = ()
    restarts: Mapping[str, int] = field(default_factory=dict)
    """How often each process was started again, in all of the run; those that were not are left out."""
    age: float = 0.0
    """Training time of all of the run (seconds)."""
    members: int = 0
    """Workers that count, or counted in the end."""
    is_now: bool = False
    """Whether the run goes on, and these are its last seconds."""

    def share(self, *parts: Part, within: tuple[Part, ...] = (*OWN, "wait")) -> float:
        """These parts of all workers' time, among the parts `within` (ratio); 0 where nothing is known."""
        return share_of(self.workers, *parts, within=within)

    def each(self, *parts: Part) -> float:
        """Seconds of these parts in a step, the median of all workers; 0 where nothing is known."""
        return middle(worker.each(*parts) for worker in self.workers)

    @property
    def traffic(self) -> float:
        """Bytes of a step, there and back; the median of all workers."""
        return middle(worker.traffic / worker.steps for worker in self.workers)

    @property
    def busiest(self) -> ServerTime:
        """The server with the highest load."""
        return max(self.servers, key=lambda server: server.load, default=ServerTime(""))

    @property
    def unevenness(self) -> float:
        """The largest slice by the mean one (ratio); 1 where nothing is known."""
        sizes = [server.slice_bytes for server in self.servers]
        return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0
