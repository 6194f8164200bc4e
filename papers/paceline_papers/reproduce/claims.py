"""The forms that a paper's sentence about its numbers can have. Each is computed from the runs of a recipe."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import ClassVar

import numpy as np

from paceline.base import intervals
from paceline.base.intervals import Interval
from paceline_papers.reproduce import rule
from paceline_papers.reproduce.rule import Verdict
from paceline_papers.reproduce.spread import of_deviations, of_spread

Numbers = Mapping[str, Mapping[str, float]]
"""Of a paper's table: by row and column."""


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """Of the straight line through values over `at`; NaN where one of them is no number."""
    return float(np.polyfit(at, values, 1)[0]) if np.isfinite(values).all() else nan


class RunFigures(ABC):
    """What the runs of a recipe gave."""

    @abstractmethod
    def of(self, row: str, column: str) -> list[float]:
        """A figure of one row, by seed."""


class Printed(RunFigures):
    """A paper's table, as if it were one run."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers

    def of(self, row: str, column: str) -> list[float]:
        return [self._numbers[row][column]]


@dataclass(frozen=True)
class Claim(ABC):
    """A sentence. `why`: our sentence on why it came out so, for each verdict that was seen."""

    zero: ClassVar[float | None] = None
    """Where its figure is without any effect; None where the sentence says more than a direction."""
    says: str
    why: Mapping[Verdict, str]

    def paper(self, numbers: Numbers) -> float | None:
        """What its figure is in the paper; None where that has words only."""
        try:
            return self.ours(Printed(numbers)).middle
        except KeyError:
            return None

    @abstractmethod
    def ours(self, found: RunFigures) -> Interval:
        """Our figure."""

    def verdict(self, found: RunFigures, numbers: Numbers) -> Verdict:
        """By the rule. `numbers`: the paper's."""
        ours, theirs = self.ours(found), self.paper(numbers)
        if self.zero is not None and theirs is not None and rule.is_no_effect(ours, theirs, self.zero):
            return Verdict.NO_EFFECT
        return self.judged(ours)

    @abstractmethod
    def judged(self, ours: Interval) -> Verdict:
        """By its direction or its range alone."""


@dataclass(frozen=True)
class Above(Claim):
    """One row's figure is above another's. `other_column`: the other's figure, where that is another one."""

    zero: ClassVar[float | None] = 0.0
    column: str
    row: str
    other: str
    other_column: str = ""

    def ours(self, found: RunFigures) -> Interval:
        pairs = zip(
            found.of(self.row, self.column), found.of(self.other, self.other_column or self.column), strict=True
        )
        return intervals.of_mean([upper - lower for upper, lower in pairs])

    def judged(self, ours: Interval) -> Verdict:
        return rule.direction(ours, 1)


@dataclass(frozen=True, kw_only=True)
class Apart(Above):
    """How far one row's figure is above another's lies in a range; an end is infinite where the sentence has one side."""

    zero: ClassVar[float | None] = None
    low: float
    high: float

    def judged(self, ours: Interval) -> Verdict:
        return rule.value(ours, self.low, self.high)


@dataclass(frozen=True)
class MoreSpread(Claim):
    """One row's figure varies more between runs than another's: the ratio of the standard deviations. `theirs`: the paper's
    ratio."""

    zero: ClassVar[float | None] = 1.0
    column: str
    row: str
    other: str
    theirs: float

    def paper(self, numbers: Numbers) -> float:
        return self.theirs

    def ours(self, found: RunFigures) -> Interval:
        return of_deviations(found.of(self.row, self.column), found.of(self.other, self.column))

    def judged(self, ours: Interval) -> Verdict:
        return rule.direction(ours, 1, zero=1.0)


@dataclass(frozen=True)
class Varies(Claim):
    """A row's figure varies between runs: its standard deviation is above this share of its mean."""

    column: str
    row: str
    least: float

    def ours(self, found: RunFigures) -> Interval:
        return of_spread(found.of(self.row, self.column))

    def judged(self, ours: Interval) -> Verdict:
        return rule.direction(ours, 1, zero=self.least)


@dataclass(frozen=True)
class Trend(Claim):
    """Our figure rises along rows, or falls where `sign` is -1: the slope of its straight line over `at`. `figure`: what is
    fitted of each row and seed."""

    zero: ClassVar[float | None] = 0.0
    rows: Sequence[str]
    at: Sequence[float]
    figure: Callable[[RunFigures, str], list[float]]
    sign: int

    def ours(self, found: RunFigures) -> Interval:
        columns = zip(*(self.figure(found, row) for row in self.rows), strict=True)
        return intervals.of_mean([slope(self.at, values) for values in columns])

    def judged(self, ours: Interval) -> Verdict:
        return rule.direction(ours, self.sign)


@dataclass(frozen=True)
class Fits(Claim):
    """A figure of all rows together, one for each seed, lies between two numbers: how well a law fits, say. An end is infinite
    where the sentence has one side, also where the figure itself can't be beyond a number: its interval can."""

    figure: Callable[[RunFigures], list[float]]
    low: float
    high: float

    def ours(self, found: RunFigures) -> Interval:
        return intervals.of_mean(self.figure(found))

    def judged(self, ours: Interval) -> Verdict:
        return rule.value(ours, self.low, self.high)


@dataclass(frozen=True)
class Between(Claim):
    """A row's figure lies between two numbers, or is one: the range that rounds to it. `theirs`: the paper's number, where its
    table does not have it."""

    column: str
    row: str
    low: float
    high: float
    theirs: float | None = None

    def paper(self, numbers: Numbers) -> float | None:
        return super().paper(numbers) if self.theirs is None else self.theirs

    def ours(self, found: RunFigures) -> Interval:
        return intervals.of_mean(found.of(self.row, self.column))

    def judged(self, ours: Interval) -> Verdict:
        return rule.value(ours, self.low, self.high)
