"""What the evaluator and the workers tell the chief."""

from dataclasses import dataclass, field


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
    """What the best model is chosen by, like 'max accuracy'; empty where nobody said."""
    examples: dict[str, int] = field(default_factory=dict)
    """How many of each split were scored; of the training data these are a sample."""


@dataclass(slots=True)
class WorkerReport:
    """What a worker last said of itself, for status and for the stall check."""

    clock: int = 0
    phase: str = "joining"
    phase_seconds: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)
    seen: float = 0.0
