"""Which phase a run is in, which one may follow, and for how long the run has trained."""

from enum import StrEnum
from typing import Any


class RunPhase(StrEnum):
    """Where the run is."""

    WAITING = "waiting"
    """For workers and for the evaluation data."""
    TRAINING = "training"
    STOPPING = "stopping"
    """The last clocks are named; workers reach them and leave."""
    SCORING = "scoring"
    """The evaluator scores the final version."""
    FINISHED = "finished"


_NEXT: dict[RunPhase, tuple[RunPhase, ...]] = {
    RunPhase.WAITING: (RunPhase.TRAINING, RunPhase.FINISHED),
    RunPhase.TRAINING: (RunPhase.STOPPING, RunPhase.SCORING),
    RunPhase.STOPPING: (RunPhase.SCORING,),
    RunPhase.SCORING: (RunPhase.FINISHED,),
    RunPhase.FINISHED: (),
}
"""Which phases may follow each one."""
_TRAINS = (RunPhase.TRAINING, RunPhase.STOPPING)


class Phases:
    """Moves a run from phase to phase and counts its training time. Not thread-safe."""

    def __init__(self) -> None:
        self.phase = RunPhase.WAITING
        self.reason = ""
        """Why the run stops, and why it has no score."""
        self._since: float | None = None
        """When the present phase began; None before anybody has looked."""
        self._counted_until = 0.0
        """Up to when `_trained` counts."""
        self._trained = 0.0

    def enter(self, phase: RunPhase, now: float, why: str = "") -> None:
        """The next phase begins; `why` is added to the reason. ValueError where it can't follow the present one."""
        if phase not in _NEXT[self.phase]:
            raise ValueError(
                f"A run that is {self.phase} can't be {phase} next, only {list(map(str, _NEXT[self.phase]))}."
            )
        self.checkpoint(now)
        self.reason = "; ".join(filter(None, (self.reason, why)))
        self.phase = phase
        self._since = now

    def waited(self, now: float) -> float:
        """How long the present phase has lasted (seconds); a new run's counts from the first look."""
        if self._since is None:
            self._since = now
        return now - self._since

    def wait_anew(self, now: float) -> None:
        """The present phase's time begins now."""
        self._since = now

    def seconds(self, now: float) -> float:
        """Training time so far (seconds)."""
        return self._trained + (now - self._counted_until if self.phase in _TRAINS else 0.0)

    def checkpoint(self, now: float) -> None:
        """Notes the training time so far, so that a restarted chief counts on from here."""
        self._trained = self.seconds(now)
        self._counted_until = now

    def state(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {"phase": self.phase, "reason": self.reason, "trained": self._trained}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Goes on where `state` was; the phase's time begins anew."""
        self.phase = RunPhase(state["phase"])
        self.reason = state["reason"]
        self._trained = state["trained"]
        self._counted_until = now
        self._since = now
