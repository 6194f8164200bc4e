"""The rule by which a paper's number agrees with ours or does not. The page has it, too."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, nan, sqrt
from statistics import mean, stdev, variance

CONFIDENCE = 0.95
RULE = (
    "For each sentence we compute one figure: a difference between two rows, a ratio of two variances, a slope, or a value. "
    "Its interval holds 95 % (Student's t over the seeds; F for a ratio of variances). Rows are compared seed by seed.",
    "A sentence that one figure is above another **agrees** where the whole interval lies on the paper's side. It **does "
    "not** where the whole interval lies on the other side.",
    "A sentence that gives a value has a range: what rounds to the paper's number, or what the sentence says. It "
    "**agrees** where the whole interval lies in the range. It **does not** where the whole interval lies outside.",
    "In all other cases, and with fewer than three seeds, our runs **cannot tell**.",
)
"""A paragraph each."""
FEWEST = 3


class Verdict(StrEnum):
    """What our runs say about a sentence of a paper."""

    AGREES = "agrees"
    DOES_NOT = "does not"
    CANNOT = "cannot tell"


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


def direction(ours: Interval, sign: float, zero: float = 0.0) -> Verdict:
    """Whether ours lies on the paper's side of `zero`: above it where `sign` is positive."""
    low, high = (ours.low, ours.high) if sign > 0 else (2 * zero - ours.high, 2 * zero - ours.low)
    if low > zero:
        return Verdict.AGREES
    return Verdict.DOES_NOT if high < zero else Verdict.CANNOT


def value(ours: Interval, low: float, high: float) -> Verdict:
    """Whether ours lies in the paper's range."""
    if low <= ours.low and ours.high <= high:
        return Verdict.AGREES
    return Verdict.DOES_NOT if ours.high < low or ours.low > high else Verdict.CANNOT
