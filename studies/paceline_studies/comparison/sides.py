"""What is compared: trainings, each with its runs, by their scores, time and throughput, staleness and waiting. Runs that
differ in their seed alone are one training."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from paceline.core.chief.best_model import Measure, number
from paceline_studies.comparison.finished import Finished

Of = Callable[[Finished], float | None]
"""A figure of a run; None where it has none."""


@dataclass(frozen=True, slots=True)
class Side:
    """One training, and its runs."""

    name: str
    runs: Sequence[Finished]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for run in self.runs})

    def by_seed(self, of: Of) -> dict[int, float]:
        """A figure of each seed's run, or the mean of its runs where a seed was trained several times."""
        found: dict[int, list[float]] = {}
        for run in self.runs:
            if (value := of(run)) is not None:
                found.setdefault(run.seed, []).append(value)
        return {seed: fmean(values) for seed, values in sorted(found.items())}


def sides_of(runs: Sequence[Finished]) -> list[Side]:
    """The runs by training, in the order in which they are named."""
    found: list[list[Finished]] = []
    for run in runs:
        same = next((group for group in found if group[0].settings == run.settings), None)
        if same is None:
            found.append([run])
        else:
            same.append(run)
    return [Side(_name(group), group) for group in found]


def sides_by(runs: Sequence[Finished], name: Callable[[Finished], str]) -> list[Side]:
    """The runs by the name of their training."""
    names = dict.fromkeys(map(name, runs))
    return [Side(each, [run for run in runs if name(run) == each]) for each in names]


def differing(sides: Sequence[Side]) -> dict[str, list[Any]]:
    """The settings in which they differ: the value of each side by dotted key; None where it has none."""
    all_settings = [side.runs[0].settings for side in sides]
    keys = dict.fromkeys(key for settings in all_settings for key in settings)
    values = {key: [settings.get(key) for settings in all_settings] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def _name(runs: Sequence[Finished]) -> str:
    """The run's name, or what the names of several begin with: digits-1 and digits-2 are digits."""
    first = runs[0].name
    if len(runs) == 1:
        return first
    stems = {re.sub(r"-\d+$", "", run.name) for run in runs}
    return stems.pop() if len(stems) == 1 else f"{first} and {len(runs) - 1} more"


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that trainings are compared by."""

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
    """The figures that a run has; first the score that trainings are chosen by, on that split, then that on the test data."""
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
