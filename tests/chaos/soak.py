"""A long run with a fault every 5 to 15 s: its books at the end, and what the processes that see all of its faults hold of
memory and files meanwhile."""

import contextlib
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.chaos.kills import Kill, schedule
from tests.chaos.rounds import SERVERS, WORKERS, Kind, Result, Round

PAUSES = 5.0, 15.0
"""Between two faults (seconds)."""
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
    """Medians."""

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
    """A round that lasts for so many seconds. One server and one worker, by the seed, are never killed: a process that starts
    again forgets what it leaked."""

    def __init__(self, kind: Kind, seed: int, folder: Path, seconds: float) -> None:
        super().__init__(kind, seed, folder)
        self._seconds = seconds
        self._spared = {"server": seed % SERVERS, "worker": seed % WORKERS}
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
            if (left := self._sparing(kill)).servers or left.workers:
                self._hit(left)
                self._goes_on(5)

    def _sparing(self, kill: Kill) -> Kill:
        """The kill without the spared processes; it may hit none."""
        servers = tuple(index for index in kill.servers if index != self._spared["server"])
        workers = tuple(rank for rank in kill.workers if rank != self._spared["worker"])
        return replace(kill, servers=servers, workers=workers, point=kill.point if servers else "")

    def _raise_fallen(self) -> None:
        super()._raise_fallen()
        now = time.monotonic()
        if now - self._looked > 1:
            self._looked = now
            self._sample(now)

    def _sample(self, now: float) -> None:
        """What the spared processes hold."""
        spared = {"server": self.servers[self._spared["server"]], "worker": self.workers[self._spared["worker"]]}
        for role, process in spared.items():
            here = Path("/proc") / str(process.pid)
            with contextlib.suppress(OSError):  # it may just have ended
                memory = 4096 * int((here / "statm").read_text().split()[1])
                files = len(list((here / "fd").iterdir()))
                self.held.samples.append(Sample(now - self._begin, role, memory, files))
        folders = [self.cluster.folder / f"s{index}" for index in range(SERVERS)]
        with contextlib.suppress(OSError):  # the servers remove old snapshots
            size = sum(file.stat().st_size for folder in folders for file in folder.iterdir() if file.suffix != ".tmp")
            self.held.folder.append((now - self._begin, size))
