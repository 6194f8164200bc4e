"""A long run with a fault every 5 to 15 s: its books at the end, and what its processes hold of memory and files meanwhile."""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.kills import Kill, schedule
from tests.chaos.rounds import SERVERS, WORKERS, Kind, Result, Round

PAUSES = 5.0, 15.0
"""Between two faults (seconds)."""
WARM = 4.0
"""A process younger than this is still loading (seconds)."""
MOST_GROWTH = 1.15
"""Of the median of memory or files, from the first quarter of the time to the last (ratio)."""


@dataclass(frozen=True)
class Sample:
    """What one process holds at one moment."""

    at: float
    """Seconds since the soak began."""
    role: str
    memory: int
    """Resident (bytes)."""
    files: int
    """Open descriptors."""


@dataclass
class Growth:
    """Medians over all processes of a role."""

    first: float
    last: float

    @property
    def is_flat(self) -> bool:
        return self.last <= MOST_GROWTH * self.first


@dataclass
class Held:
    """All samples."""

    samples: list[Sample] = field(default_factory=list)
    folder: list[tuple[float, int]] = field(default_factory=list)
    """Bytes in the servers' folders, over time."""

    def growth(self, role: str, what: str) -> Growth:
        """Of `memory` or `files`, from the first quarter of the time to the last."""
        mine = [sample for sample in self.samples if sample.role == role]
        end = max(sample.at for sample in mine)
        first = [getattr(sample, what) for sample in mine if sample.at <= end / 4]
        last = [getattr(sample, what) for sample in mine if sample.at >= 3 * end / 4]
        return Growth(statistics.median(first), statistics.median(last))

    def growths(self) -> dict[str, Growth]:
        """By name."""
        found = {
            f"{role} {what}": self.growth(role, what) for role in ("server", "worker") for what in ("memory", "files")
        }
        sizes = [size for _, size in self.folder]
        quarter = max(1, len(sizes) // 4)
        return found | {
            "server folders": Growth(statistics.median(sizes[:quarter]), statistics.median(sizes[-quarter:]))
        }


class Soak(Round):
    """A round that lasts for so many seconds."""

    def __init__(self, kind: Kind, seed: int, folder: Path, seconds: float) -> None:
        super().__init__(kind, seed, folder)
        self._seconds = seconds
        self._born: dict[int, float] = {}
        self._begin = time.monotonic()
        self._looked = 0.0
        self.held = Held()

    def run(self, kills: int | Sequence[Kill] = 0) -> Result:
        """Trains through faults until the time is over; as `Round.run`."""
        return super().run(kills)

    def _disturb(self, kills: int | Sequence[Kill]) -> None:
        self._begin = time.monotonic()
        for kill in schedule(self.result.seed, None, SERVERS, WORKERS, PAUSES):
            self._watch(kill.after)
            if time.monotonic() - self._begin > self._seconds:
                return
            self._hit(kill)
            self._goes_on(5)

    def _raise_fallen(self) -> None:
        super()._raise_fallen()
        now = time.monotonic()
        if now - self._looked > 1:
            self._looked = now
            self._sample(now)

    def _sample(self, now: float) -> None:
        """What all processes hold that are not new any more."""
        roles = [(process, "server") for process in self.servers.values()]
        roles += [(process, "worker") for process in self.workers.values()]
        for process, role in roles:
            here = Path("/proc") / str(process.pid)
            if now - self._born.setdefault(process.pid, now) > WARM:
                with contextlib.suppress(OSError):  # it may just have ended
                    memory = 4096 * int((here / "statm").read_text().split()[1])
                    files = len(list((here / "fd").iterdir()))
                    self.held.samples.append(Sample(now - self._begin, role, memory, files))
        folders = [self.cluster.folder / f"s{index}" for index in range(SERVERS)]
        with contextlib.suppress(OSError):  # the servers remove old snapshots
            size = sum(file.stat().st_size for folder in folders for file in folder.iterdir() if file.suffix != ".tmp")
            self.held.folder.append((now - self._begin, size))
