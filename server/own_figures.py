"""What this server's process has done so far, for the run's status, and how it began."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from paceline.server.disk import DiskTrouble
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.v1 import run_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class ServerStart:
    """One start of one server."""

    term: int
    snapshot: int | None = None
    """Version of the snapshot that it went on from (folds); None: there was none."""
    damaged: int = 0
    """Damaged snapshots that it passed over."""


def most_capped(figures: Iterable[pb.ServerFigures]) -> dict[str, pb.CappedPushes]:
    """Of each worker what the server says that has capped most of its pushes: each one has its own part of the same push."""
    found: dict[str, pb.CappedPushes] = {}
    for each in figures:
        for worker, capped in each.capped.items():
            before = found.get(worker, pb.CappedPushes())
            found[worker] = pb.CappedPushes(
                pushes=max(before.pushes, capped.pushes), share=max(before.share, capped.share)
            )
    return found


class OwnFigures:
    """Counts from its making on. Reads what others write, so any thread may ask."""

    def __init__(self, driver: SliceDriver, snapshots: Snapshots) -> None:
        self._driver = driver
        self._snapshots = snapshots
        self._troubles = [snapshots.trouble, snapshots.store_trouble]
        self._began = time.monotonic()
        self._used = time.process_time()

    def look_at(self, trouble: DiskTrouble) -> None:
        """Something else that this server writes."""
        self._troubles.append(trouble)

    def message(self) -> pb.ServerFigures:
        """As of now."""
        plan, cap = self._driver.plan, self._driver.norm_cap
        return pb.ServerFigures(
            seconds=time.monotonic() - self._began,
            busy_seconds=time.process_time() - self._used,
            slice_bytes=0 if plan is None else 4 * plan.lengths[self._driver.index],
            pushes=self._driver.counted,
            checkpoint_seconds=self._snapshots.seconds,
            capped={
                worker: pb.CappedPushes(pushes=found.pushes, share=found.share)
                for worker, found in ({} if cap is None else cap.workers).items()
            },
            disk_trouble=next((each.said for each in self._troubles if each.said), ""),
        )
