"""What is known of a figure by the runs of several seeds: its middle, and the interval that holds it with 95 %. Needs scipy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, nan, sqrt
from statistics import mean, stdev, variance

CONFIDENCE = 0.95
FEWEST = 3
"""Runs that can tell anything."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Our figure with its confidence interval; from minus to plus infinity where there are too few runs."""

    middle: float
    low: float
    high: float


def of_mean(values: Sequence[float]) -> Interval:
    """Of the mean of values, one for each seed."""
    from scipy import stats

    middle = mean(values)
    if len(values) < FEWEST:
        return Interval(middle, -inf, inf)
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(values) - 1)) * stdev(values) / sqrt(len(values))
    return Interval(middle, middle - half, middle + half)


def of_variances(upper: Sequence[float], lower: Sequence[float]) -> Interval:
    """Of the ratio of two samples' variances."""
    from scipy import stats

    if min(len(upper), len(lower)) < 2:
        return Interval(nan, 0.0, inf)  # one run has no variance
    if min(len(upper), len(lower)) < FEWEST or not variance(lower):
        return Interval(variance(upper) / variance(lower) if variance(lower) else inf, 0.0, inf)
    middle = variance(upper) / variance(lower)
    law = stats.f(len(upper) - 1, len(lower) - 1)
    return Interval(
        middle, middle / float(law.ppf((1 + CONFIDENCE) / 2)), middle / float(law.ppf((1 - CONFIDENCE) / 2))
    )
