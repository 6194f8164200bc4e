"""The rule by which a paper's number agrees with ours or does not. The page has it, too."""

from enum import StrEnum
from math import isinf

from paceline.base.intervals import Interval

RULE = (
    "For each sentence we compute one figure: a difference between two rows, a slope, a value, a standard deviation, or a "
    "ratio of two of them. Its interval holds 95 % (Student's t over the seeds; chi squared for a deviation, and F for a "
    "ratio of two). Rows are compared seed by seed.",
    "A sentence that one figure is above another **agrees** where the whole interval lies on the paper's side. It **does "
    "not** where the whole interval lies on the other side.",
    "A sentence that gives a value has a range: what rounds to the paper's number, or what the sentence says. It "
    "**agrees** where the whole interval lies in the range. It **does not** where the whole interval lies outside. A range "
    "has no end on a side of which the sentence says nothing; its one end is then no part of it.",
    "Where the paper gives the size of what a sentence says, and our whole interval lies within a tenth of that size around "
    "zero (around one for a ratio), it **does not: no such effect here**, whatever its sign.",
    "In all other cases, and with fewer than three seeds, our runs **cannot tell**.",
)
"""A paragraph each."""


SHARE = 0.1
"""Of a paper's effect: what is smaller counts as none."""


class Verdict(StrEnum):
    """What our runs say about a sentence of a paper."""

    AGREES = "agrees"
    DOES_NOT = "does not"
    NO_EFFECT = "does not: no such effect here"
    CANNOT = "cannot tell"


def is_no_effect(ours: Interval, theirs: float, zero: float) -> bool:
    """Returns whether ours is surely less than a tenth of the paper's effect, which is how far `theirs` is from `zero`."""
    most = SHARE * abs(theirs - zero)
    return most > 0 and zero - most <= ours.low and ours.high <= zero + most


def direction(ours: Interval, sign: float, zero: float = 0.0) -> Verdict:
    """Whether ours lies on the paper's side of `zero`: above it where `sign` is positive."""
    low, high = (ours.low, ours.high) if sign > 0 else (2 * zero - ours.high, 2 * zero - ours.low)
    if low > zero:
        return Verdict.AGREES
    return Verdict.DOES_NOT if high < zero else Verdict.CANNOT


def value(ours: Interval, low: float, high: float) -> Verdict:
    """Whether ours lies in the paper's range. With one end only, a figure that is that end in every run can't tell."""
    if isinf(high):
        return direction(ours, 1, low)
    if isinf(low):
        return direction(ours, -1, high)
    if low <= ours.low and ours.high <= high:
        return Verdict.AGREES
    return Verdict.DOES_NOT if ours.high < low or ours.low > high else Verdict.CANNOT
