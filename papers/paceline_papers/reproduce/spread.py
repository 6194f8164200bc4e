"""The intervals of deviations, which papers compare."""

from collections.abc import Sequence
from math import inf, nan, sqrt
from statistics import mean, stdev

from paceline.base.intervals import CONFIDENCE, FEWEST, Interval, are_numbers


def of_deviations(upper: Sequence[float], lower: Sequence[float]) -> Interval:
    """Of the ratio of two samples' standard deviations."""
    from scipy import stats

    if min(len(upper), len(lower)) < 2 or not are_numbers([*upper, *lower]):
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

    if len(values) < 2 or not are_numbers(values):
        return Interval(nan, 0.0, inf)
    if len(values) < FEWEST:
        return Interval(stdev(values) / mean(values), 0.0, inf)
    middle, free = stdev(values) / mean(values), len(values) - 1
    low, high = (middle * sqrt(free / float(stats.chi2.ppf((1 + side * CONFIDENCE) / 2, free))) for side in (1, -1))
    return Interval(middle, low, high)
