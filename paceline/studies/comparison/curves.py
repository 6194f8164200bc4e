"""Scores while trainings go on: by epoch and by time, the mean over the seeds and how far they lie apart."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.core.chief.scoring import Score
from paceline.studies.comparison.comparison import Comparison
from paceline.studies.comparison.finished import Finished
from paceline.studies.comparison.sides import Side

PLACES = 80
"""Of a curve by time."""
Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Curve:
    """Of one side."""

    name: str
    at: Numbers
    """Epochs, or seconds."""
    mean: Numbers
    low: Numbers
    """Mean minus standard deviation; the mean itself of a single seed."""
    high: Numbers


def by_epoch(found: Comparison) -> list[Curve]:
    """A place for each epoch that every run of the side has come to."""
    return _curves(found, lambda score: float(score.epoch), lambda ends: np.arange(0, int(ends) + 1, dtype=float))


def by_time(found: Comparison) -> list[Curve]:
    """Up to the time (seconds) when the first run of a side has ended."""
    return _curves(found, lambda score: score.seconds, lambda ends: np.linspace(0.0, ends, PLACES))


def _curves(found: Comparison, place: Callable[[Score], float], places: Callable[[float], Numbers]) -> list[Curve]:
    curves = [_curve(side, f"{found.split}_{found.measure.name}", place, places) for side in found.sides]
    return [curve for curve in curves if curve is not None]


def _curve(side: Side, name: str, place: Callable[[Score], float], places: Callable[[float], Numbers]) -> Curve | None:
    """None where a run has no such scores."""
    lines = [_line(run, name, place) for run in side.runs]
    if any(not len(at) for at, _ in lines):
        return None
    begins, ends = max(at[0] for at, _ in lines), min(at[-1] for at, _ in lines)
    at = places(ends)
    at = at[at >= begins] if begins <= ends else np.array([ends])
    values = np.array([np.interp(at, *line) for line in lines])
    mean = values.mean(axis=0)
    spread = values.std(axis=0, ddof=1) if len(lines) > 1 else np.zeros_like(mean)
    return Curve(side.name, at, mean, mean - spread, mean + spread)


def _line(run: Finished, name: str, place: Callable[[Score], float]) -> tuple[Numbers, Numbers]:
    scores = [(place(score), score.metrics[name]) for score in run.history if name in score.metrics]
    known = sorted(
        {at: value for at, value in scores if np.isfinite(value)}.items()
    )  # a run that goes back has two of an epoch
    return np.array([at for at, _ in known]), np.array([value for _, value in known])
