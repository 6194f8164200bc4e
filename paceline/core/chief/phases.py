"""Tracks a run's phase, which phase may follow, and how long the run has trained."""

from enum import StrEnum
from typing import Any


class RunPhase(StrEnum):
    """The phases of a run."""

    WAITING = "waiting"
    """The run waits for workers and for the evaluation data."""
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
    RunPhase.SCORING: (RunPhase.FINISHED, RunPhase.WAITING),
    RunPhase.FINISHED: (RunPhase.WAITING,),
}
"""The phases that may follow each phase. A run that is over waits again when it was given more epochs."""
_TRAINS = (RunPhase.TRAINING, RunPhase.STOPPING)


class Phases:
    """Moves a run from phase to phase and counts its training time. Not thread-safe."""

    def __init__(self) -> None:
        self.phase = RunPhase.WAITING
        self.reason = ""
        """Why the run stops, and why it has no score."""
        self._since: float | None = None
        """When the present phase began; None before the first look."""
        self._counted_until = 0.0
        """The time up to which `_trained` counts."""
        self._trained = 0.0

    def enter(self, phase: RunPhase, now: float, why: str = "") -> None:
        """Begins the next phase and adds `why` to the reason. ValueError if it can't follow the present one."""
        if phase not in _NEXT[self.phase]:
            raise ValueError(
                f"A run that is {self.phase} can't be {phase} next, only {list(map(str, _NEXT[self.phase]))}."
            )
        self.checkpoint(now)
        self.reason = "" if phase is RunPhase.WAITING else "; ".join(filter(None, (self.reason, why)))
        self.phase = phase
        self._since = now

    def waited(self, now: float) -> float:
        """How long the present phase has lasted (seconds); a new run's counts from the first look."""
        if self._since is None:
            self._since = now
        return now - self._since

    def wait_anew(self, now: float) -> None:
        """Restarts the present phase's time now."""
        self._since = now

    def seconds(self, now: float) -> float:
        """Training time so far (seconds)."""
        return self._trained + (now - self._counted_until if self.phase in _TRAINS else 0.0)

    def checkpoint(self, now: float) -> None:
        """Stores the training time so far, so that a restarted chief continues from it."""
        self._trained = self.seconds(now)
        self._counted_until = now

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values."""
        return {"phase": self.phase, "reason": self.reason, "trained": self._trained}

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Continues from `state`; the phase's time starts again."""
        self.phase = RunPhase(state["phase"])
        self.reason = state["reason"]
        self._trained = state["trained"]
        self._counted_until = now
        self._since = now
