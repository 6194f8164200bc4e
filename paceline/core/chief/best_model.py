"""Decides which of two versions is better, and which score a run reports."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paceline.core.errors import ConfigError

SPLITS = ("test", "validation", "train")
"""Splits in order of preference: a run reports the first that was scored."""
_BETTER = {"loss": "min", "accuracy": "max"}
"""Names that have one direction only."""


@dataclass(frozen=True, slots=True)
class Measure:
    """The metric that decides which of two versions is better, like 'max f1'."""

    direction: str
    """'max': larger is better, or 'min'."""
    name: str

    @classmethod
    def parse(cls, text: object, where: str) -> "Measure":
        """'max f1' as a measure; ConfigError, which begins with `where`, for anything else."""
        words = text.split() if isinstance(text, str) else []
        if len(words) != 2 or words[0] not in ("min", "max"):
            raise ConfigError(
                f"{where} is {text!r}; expected min or max and the name of a metric, like 'min loss' or 'max f1'."
            )
        found = cls(*words)
        better = _BETTER.get(found.name, found.direction)
        if found.direction != better:
            raise ConfigError(f"{where} is {text!r}, which would keep the worst model; write '{better} {found.name}'.")
        return found

    def __str__(self) -> str:
        return f"{self.direction} {self.name}"

    @property
    def sign(self) -> int:
        """The factor that makes larger values better."""
        return 1 if self.direction == "max" else -1

    def check(self, names: Iterable[str], where: str) -> None:
        """Raises ConfigError, which begins with `where`, if no metric has the measure's name."""
        known = sorted({*names, "loss"})
        if self.name in known:
            return
        hint = " Accuracy is measured by itself only where labels are classes." if self.name == "accuracy" else ""
        raise ConfigError(f"{where} is '{self}', but what is measured is: {', '.join(known)}.{hint} Name one of these.")

    def rank(self, scores: Mapping[str, float]) -> tuple[float, float]:
        """A sorting key, larger is better: the measure, then the loss between equals. A missing value or NaN is the worst."""
        return _worth(self.sign, scores.get(self.name)), _worth(-1, scores.get("loss"))


ACCURACY, LOSS = Measure("max", "accuracy"), Measure("min", "loss")


def default_measure(names: Iterable[str]) -> Measure:
    """The measure if the task names none: accuracy if it is measured, otherwise the loss."""
    return ACCURACY if ACCURACY.name in names else LOSS


def scores_of(metrics: Mapping[str, float], split: str) -> dict[str, float]:
    """The scores of one split, the loss first, the others by name: of {'test_loss': 0.5}, for 'test', {'loss': 0.5}."""
    found = {name.removeprefix(f"{split}_"): value for name, value in metrics.items() if name.startswith(f"{split}_")}
    return {name: found[name] for name in sorted(found, key=lambda name: (name != LOSS.name, name))}


def measure_of(metrics: Mapping[str, float], told: str = "") -> Measure:
    """The measure of a run. `told`: the one that the evaluator reported; if it is empty, chosen from what was measured."""
    if told:
        return Measure.parse(told, "The run's measure")
    return default_measure(name.partition("_")[2] for name in metrics)


def whose(metrics: Iterable[str]) -> str:
    """What the names of the kept model's scores begin with: 'mean_' where the local models' mean was scored, which is then
    kept; otherwise nothing."""
    return "mean_" if any(name.startswith("mean_") for name in metrics) else ""


def chooses(metrics: Mapping[str, float]) -> str:
    """Which scores choose the best model: those on validation data, or on training data where there is none, or on test data
    where a script gives no others; those of the local models' mean where it was scored, because then it is what is kept."""
    kind = whose(metrics)
    names = [f"{kind}{split}" for split in ("validation", "train", "test")]
    return next((split for split in names if scores_of(metrics, split)), "train")


def result(metrics: Mapping[str, float], told: str = "") -> str:
    """The result of a finished run, like 'test accuracy 0.9667' or 'test f1 0.7312, precision 0.8000': its measure on the test
    data (or on the data it was scored on), then the task's other metrics; or that it was not scored."""
    split = next((split for split in SPLITS if scores_of(metrics, split)), None)
    if split is None:
        return "test score unknown: the run was not scored"
    measure, scores = measure_of(metrics, told), scores_of(metrics, split)
    others = [name for name in scores if name not in (measure.name, LOSS.name)]
    return ", ".join(
        [f"{split} {_figure_text(measure.name, scores.get(measure.name, math.nan))}"]
        + [_figure_text(name, scores[name]) for name in others]
    ) + beside(metrics, measure, split)


def by_split(metrics: Mapping[str, float], examples: Mapping[str, int]) -> str:
    """All scores in one line: 'train (2,000 examples): loss 0.0312, accuracy 0.9900; test (360 examples): ...'."""
    found = []
    for kind, whose in (("", ""), ("mean_", "mean of the local models, "), ("vote_", "their vote, ")):
        for split in reversed(SPLITS):
            if scores := scores_of(metrics, f"{kind}{split}"):
                of = f" ({examples[split]:,} examples)" if split in examples else ""
                found.append(f"{whose}{split}{of}: " + ", ".join(_figure_text(*score) for score in scores.items()))
    return "; ".join(found)


def beside(metrics: Mapping[str, float], measure: Measure, split: str) -> str:
    """The scores of the local models, printed after the global model's; empty if the policy has none scored."""
    found = {kind: metrics.get(f"{kind}_{split}_{measure.name}") for kind in ("mean", "vote")}
    told = [f"{kind} {number(value)}" for kind, value in found.items() if value is not None]
    return f" (global; local models: {', '.join(told)})" if told else ""


def number(value: float) -> str:
    """Four decimal places; small numbers with three significant digits."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 1e-3 else f"{value:.3g}"


def _figure_text(name: str, value: float) -> str:
    return f"{name.replace('_', ' ')} {number(value)}"


def _worth(sign: int, value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else sign * value
