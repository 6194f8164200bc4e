"""Says when a run's scores are reason enough to end it early."""

import math
from collections.abc import Sequence
from itertools import pairwise

from paceline.core.chief.best_model import Measure, chooses, measure_of, number, scores_of
from paceline.core.chief.scoring import Score
from paceline.core.settings.stopping import StoppingConfig


def settled(stopping: StoppingConfig | None, scores: Sequence[Score]) -> str:
    """Why the run may end, given its scores, oldest first; empty while it goes on. What was scored before the first whole
    epoch does not count."""
    told = [score for score in scores if score.epoch >= 1]
    if stopping is None or not told:
        return ""
    split = chooses(told[-1].metrics)
    measure = measure_of(told[-1].metrics, told[-1].measure)
    values = [scores_of(score.metrics, split).get(measure.name, math.nan) for score in told]
    why = {"window": _window, "delta": _delta, "target": _target}[stopping.rule](stopping, measure, values)
    return f"early stopping after epoch {told[-1].epoch}: {split.replace('_', ' ')} {measure.name} {why}" if why else ""


def _window(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    """A score that is no number is not better."""
    best, waited = -math.inf, 0
    for value in values:
        worth, waited = measure.sign * value, waited + 1
        if worth > best + stopping.min_delta:
            best, waited = worth, 0
    if waited < stopping.patience:
        return ""
    by = f" by more than {stopping.min_delta:g}" if stopping.min_delta else ""
    was = f"better than {number(measure.sign * best)}{by}" if math.isfinite(best) else "a number"
    return f"was not {was} in {waited} score{'s' if waited > 1 else ''}"


def _delta(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    for before, after in pairwise(values[-2:]):
        if abs(after - before) < stopping.delta:
            return f"went from {number(before)} to {number(after)}, by less than {stopping.delta:g}"
    return ""


def _target(stopping: StoppingConfig, measure: Measure, values: Sequence[float]) -> str:
    if stopping.target is None or not measure.sign * values[-1] >= measure.sign * stopping.target:
        return ""
    return f"is {number(values[-1])}, and {stopping.target:g} is asked for"
