"""The figures that trainings are compared by: their scores, time and throughput, staleness and waiting."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline.core.chief.best_model import Measure, number
from paceline.studies.comparison.finished import Finished
from paceline.studies.comparison.sides import Of


@dataclass(frozen=True, slots=True)
class Figure:
    """One of them."""

    key: str
    """For programs."""
    title: str
    """For people."""
    of: Of
    sign: int
    """1: more is better, -1: less is better, 0: neither."""
    told: Callable[[float], str]
    """A value for people."""
    is_spread_told: bool = True
    """Whether tables have its spread, too."""


def figures_of(runs: Sequence[Finished], measure: Measure, split: str) -> list[Figure]:
    """Those that a run has; first the score that trainings are chosen by, on that split, then that on the test data."""
    splits = dict.fromkeys((split, "test"))
    found = [_score(name, measure) for name in splits if any(f"{name}_{measure.name}" in run.metrics for run in runs)]
    found += [
        Figure("seconds", "time (s)", lambda run: run.seconds, -1, _amount),
        Figure("throughput", "examples/s", lambda run: run.throughput, 1, _amount, False),
        Figure("staleness", "staleness", lambda run: run.staleness, 0, lambda value: f"{value:.1f}", False),
        Figure("waited", "waiting", lambda run: run.waited, 0, lambda value: f"{100 * value:.0f} %", False),
    ]
    return [figure for figure in found if any(figure.of(run) is not None for run in runs)]


def _score(split: str, measure: Measure) -> Figure:
    name = f"{split}_{measure.name}"
    return Figure(name, name.replace("_", " "), lambda run: run.metrics.get(name), measure.sign, number)


def _amount(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"
