"""Notices that a run has stopped moving, and reports each worker's last position."""

from paceline.v1.run_service_pb2 import StatusReply, WorkerStatus

STILL = 60.0
"""Seconds without a new version (or an answer of the chief) after which a run has stalled; said again as often."""
MOVING = ("training", "stopping")


class Stall:
    """Fed with each status; time (seconds on any steady clock) is handed in."""

    def __init__(self, now: float) -> None:
        self._here: object = None
        self._since = self._said = now

    def check(self, status: StatusReply | None, now: float) -> str | None:
        """What to tell people, if it is time to."""
        here = None if status is None else (status.phase, status.version)
        if here != self._here or (status is not None and status.phase not in MOVING):
            self._here = here
            self._since = now
            self._said = now
        if now - self._said < STILL:
            return None
        self._said = now
        seconds = f"{now - self._since:.0f} s"
        if status is None:
            return f"server-0 has not answered for {seconds}; see its log."
        workers = "; ".join(map(_last_seen, status.workers)) or "there are no workers"
        return f"no progress for {seconds} at version {status.version:,} ({status.phase}). Last seen: {workers}."


def _last_seen(worker: WorkerStatus) -> str:
    words = f"{worker.worker} in {worker.phase} for {worker.phase_seconds:.0f} s at clock {worker.clock:,}"
    return words + (f", silent for {worker.silent:.0f} s" if worker.silent >= 1 else "")
