"""What is known of a figure by the runs of several seeds: its middle, and the interval that holds it with 95 %. Needs scipy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite, nan, sqrt
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
    if len(values) < FEWEST or not _are_numbers(values):
        return Interval(middle, -inf, inf)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def of_deviations(upper: Sequence[float], lower: Sequence[float]) -> Interval:
    """Of the ratio of two samples' standard deviations."""
    from scipy import stats

    if min(len(upper), len(lower)) < 2 or not _are_numbers([*upper, *lower]):
        return Interval(nan, 0.0, inf)  # one run has no deviation
    if min(len(upper), len(lower)) < FEWEST or not stdev(lower):
        return Interval(stdev(upper) / stdev(lower) if stdev(lower) else inf, 0.0, inf)
    middle = stdev(upper) / stdev(lower)
    law = stats.f(len(upper) - 1, len(lower) - 1)  # of the variances
    low, high = (middle / sqrt(float(law.ppf((1 + side * CONFIDENCE) / 2))) for side in (1, -1))
    return Interval(middle, low, high)


def of_spread(values: Sequence[float]) -> Interval:
    """Of the standard deviation as a share of the mean."""
    from scipy import stats

    if len(values) < 2 or not _are_numbers(values):
        return Interval(nan, 0.0, inf)
    if len(values) < FEWEST:
        return Interval(stdev(values) / mean(values), 0.0, inf)
    middle, free = stdev(values) / mean(values), len(values) - 1
    low, high = (middle * sqrt(free / float(stats.chi2.ppf((1 + side * CONFIDENCE) / 2, free))) for side in (1, -1))
    return Interval(middle, low, high)


def _are_numbers(values: Sequence[float]) -> bool:
    return all(map(isfinite, values))
