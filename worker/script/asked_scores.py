"""What a script asks for by `paceline.evaluate`, and what its function gave, by name."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from paceline.core.chief.best_model import ACCURACY, LOSS, Measure
from paceline.core.errors import ConfigError

Evaluate = Callable[[], Any]
"""The script's: metrics by name, or the loss as a number."""
Baseline = Callable[[], dict[str, float]]


@dataclass(frozen=True, slots=True)
class AskedScores:
    """What scores the model, and what its scores decide."""

    function: Evaluate
    every: int
    """Epochs between two scores; steps, with `paceline.steps`."""
    best: Measure | None
    """What chooses the best model; None: accuracy where it is measured, or the loss."""
    patience: int | None
    """Scores in a row without a better one after which the run stops."""
    baseline: Baseline | None = None
    """What scores are compared with (see EvaluateRequest); None: nothing."""
    apart: bool = False
    """Whether a process that does nothing else scores."""

    @classmethod
    def of(
        cls,
        function: Evaluate,
        every: int = 1,
        best: str | None = None,
        patience: int | None = None,
        baseline: Baseline | None = None,
        apart: bool = False,
    ) -> Self:
        """What the script has given. ConfigError where it is none."""
        if patience is not None and patience < 1:
            raise ConfigError(
                f"paceline.evaluate: patience is {patience}; expected 1 or more scores without a better one."
            )
        if not callable(function) or every < 1:
            raise ConfigError(
                f"paceline.evaluate got {type(function).__name__} and every={every}; expected a function without "
                "arguments that returns metrics, and every= 1 or more whole epochs."
            )
        measure = None if best is None else Measure.parse(best, "paceline.evaluate: best")
        return cls(function, every, measure, patience, baseline, apart)


@contextmanager
def kept_modes(model: Any) -> Iterator[None]:
    """Restores the mode of each of the model's modules after the block: `model.eval()` in a score is over with it."""
    modes = [(module, module.training) for module in getattr(model, "modules", tuple)()]
    yield
    for module, mode in modes:
        module.training = mode


def named(found: object, function: Callable[[], Any], best: Measure | None = None) -> tuple[Mapping[Any, Any], str]:
    """The scores by name, and a sentence for people if the name was guessed. A single number is what `best` names; without it,
    the accuracy if the function is called so, and otherwise the loss."""
    if isinstance(found, Mapping):
        return found, ""
    if best is not None:
        return {best.name: found}, ""
    guessed = ACCURACY if "accuracy" in getattr(function, "__name__", "").lower() else LOSS
    better = "more" if guessed.sign > 0 else "less"
    return {guessed.name: found}, (
        f"paceline.evaluate: one number is taken as the {guessed.name}: {better} is better. If it is something else, give it a "
        "name: return {'f1': number}, and say best='max f1'."
    )
