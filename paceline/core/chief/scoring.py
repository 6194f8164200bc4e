"""Tracks which versions of the model were scored and which is due next, and words the run's result."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from paceline.core.chief.best_model import result
from paceline.core.errors import Fenced


@dataclass(frozen=True, slots=True)
class Score:
    """What the evaluator found for one version of the model."""

    epoch: int
    seconds: float
    """Training time at which the version was taken."""
    versions: list[int]
    metrics: dict[str, float]
    """Named split_metric, e.g. test_accuracy (ratio), validation_loss."""
    final: bool = False
    measure: str = ""
    """The measure that chooses the best model, like 'max accuracy'; empty if none was reported."""
    examples: dict[str, int] = field(default_factory=dict)
    """How many of each split were scored; of the training data these are a sample."""

    @classmethod
    def of(cls, kept: Mapping[str, Any]) -> "Score":
        """From a line of metrics.jsonl, of this release or another one."""
        names = [field.name for field in fields(cls)]
        return cls(**{name: kept[name] for name in names if name in kept})


class Scoring:
    """The evaluator's side of a run. Not thread-safe."""

    def __init__(self, every: int = 1, by_worker: bool = False) -> None:
        """`every`: whole epochs between two scores; 0: the last version alone is taken, by a worker. `by_worker`: a worker
        scores. In both cases nobody waits for an evaluator."""
        self._every = every
        self.scores: list[Score] = []
        self.skipped = 0
        """Epochs that ended without a score."""
        self._gone: set[int] = set()
        """Places of the scores of weights from which a diverged run went back."""
        self._judged_from = 0
        """How many scores had come when the run last got more epochs."""
        self.by_worker = by_worker or not every
        """Whether no evaluator is started."""
        self.is_ready = self.by_worker
        """Whether the evaluator has its data."""
        self.evaluator = 0
        """The number of the newest evaluator."""

    def admit(self, number: int) -> int:
        """The number of the evaluator that calls; `number`: as in an earlier reply, 0 in its first call. Fenced: a newer one
        has called."""
        if 0 < number < self.evaluator:
            raise Fenced(f"Evaluator {self.evaluator} has taken over from number {number}: nothing is left to do here.")
        self.evaluator = number or self.evaluator + 1
        return self.evaluator

    def is_due(self, epoch: int) -> bool:
        """Whether the version after this many whole epochs is new and due to be scored."""
        return bool(self._every) and epoch // self._every > self._newest // self._every

    @property
    def next_due(self) -> float:
        """The epochs after which an evaluator scores next; infinite if none does."""
        return math.inf if self.by_worker else (self._newest // self._every + 1) * self._every

    def is_new(self, epoch: int) -> bool:
        """Whether the version after this many epochs is a later one than all that were scored."""
        return bool(self._every) and epoch > max(0, self._newest)

    def add(self, score: Score, is_gone: bool = False) -> None:
        """The evaluator has scored another version. `is_gone`: of weights from which the run has gone back meanwhile."""
        if is_gone:
            self._gone.add(len(self.scores))
        else:
            self.skipped += max(0, score.epoch // max(1, self._every) - self._newest // max(1, self._every) - 1)
        self.scores.append(score)

    @property
    def judged(self) -> list[Score]:
        """Those that may end the run early: what ended it once does not end it again."""
        return [self.scores[place] for place in range(self._judged_from, len(self.scores)) if place not in self._gone]

    def judge_anew(self) -> None:
        """The run has got more epochs."""
        self._judged_from = len(self.scores)

    def go_back(self, epoch: float) -> None:
        """The run goes back to weights of this epoch: later ones will be due again."""
        self._gone |= {place for place, score in enumerate(self.scores) if score.epoch > epoch}

    def is_repeat(self, score: Score) -> bool:
        """Whether this repeats the newest score: its sender missed the acknowledgement."""
        return self.scores[-1:] == [score]

    @property
    def result(self) -> str | None:
        """The final version's score in words; None where it was not scored, or not yet."""
        if not self.scores or not self.scores[-1].final:
            return None
        return result(self.scores[-1].metrics, self.scores[-1].measure)

    @property
    def _newest(self) -> int:
        kept = (place for place in reversed(range(len(self.scores))) if place not in self._gone)
        return next((self.scores[place].epoch for place in kept), -1)

    def state(self) -> dict[str, Any]:
        """The state as plain JSON values; a new evaluator reports again that it has its data."""
        scores = [asdict(score) for score in self.scores]
        gone = sorted(self._gone)
        return {"scores": scores, "skipped": self.skipped, "judged_from": self._judged_from, "gone": gone}

    def restore(self, state: dict[str, Any]) -> None:
        """Continues from `state`."""
        self.scores = [Score(**score) for score in state["scores"]]
        self.skipped = state["skipped"]
        self._judged_from = state.get("judged_from", 0)
        self._gone = set(state.get("gone", ()))
