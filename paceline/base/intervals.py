"""What is known of a figure by the runs of several seeds: its middle, and the interval that holds it with 95 %. Needs scipy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from statistics import mean, stdev

CONFIDENCE = 0.95
FEWEST = 3
"""Runs that can tell anything."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Our figure with its confidence interval; from minus to plus infinity where there are too few runs, or a run has no such
    figure (infinity or NaN)."""

    middle: float
    low: float
    high: float


def of_mean(values: Sequence[float]) -> Interval:
    """Of the mean of values, one for each seed."""
    from scipy import stats

    middle = mean(values)
    if len(values) < FEWEST or not are_numbers(values):
        return Interval(middle, -inf, inf)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def are_numbers(values: Sequence[float]) -> bool:
    """Returns whether none is infinite or NaN."""
    return all(map(isfinite, values))
