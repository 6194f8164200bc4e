"""The forms that a paper's sentence about its numbers can have. Each is computed from the runs of a recipe."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paceline import intervals
from paceline.intervals import Interval
from paceline.reproduce import rule
from paceline.reproduce.rule import Verdict

Numbers = Mapping[str, Mapping[str, float]]
"""Of a paper's table: by row and column."""


class Found(ABC):
    """What the runs of a recipe gave."""

    @abstractmethod
    def of(self, row: str, column: str) -> list[float]:
        """A figure of one row, by seed."""


@dataclass(frozen=True)
class Claim(ABC):
    """A sentence. `why`: our sentence on why it came out so, for each verdict that was seen."""

    says: str
    why: Mapping[Verdict, str]

    @abstractmethod
    def paper(self, numbers: Numbers) -> float | None:
        """Its number; None where the paper has words only."""

    @abstractmethod
    def ours(self, found: Found) -> Interval:
        """Our figure."""

    @abstractmethod
    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        """By the rule."""


@dataclass(frozen=True)
class Above(Claim):
    """One row's figure is above another's."""

    column: str
    row: str
    other: str

    def paper(self, numbers: Numbers) -> float | None:
        rows = [numbers.get(name, {}).get(self.column) for name in (self.row, self.other)]
        return None if rows[0] is None or rows[1] is None else rows[0] - rows[1]

    def ours(self, found: Found) -> Interval:
        pairs = zip(found.of(self.row, self.column), found.of(self.other, self.column), strict=True)
        return intervals.of_mean([upper - lower for upper, lower in pairs])

    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        return rule.direction(self.ours(found), 1)


@dataclass(frozen=True)
class MoreSpread(Claim):
    """One row's figure varies more between runs than another's: the ratio of the variances. `theirs`: the paper's ratio."""

    column: str
    row: str
    other: str
    theirs: float

    def paper(self, numbers: Numbers) -> float:
        return self.theirs

    def ours(self, found: Found) -> Interval:
        return intervals.of_variances(found.of(self.row, self.column), found.of(self.other, self.column))

    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        return rule.direction(self.ours(found), 1, zero=1.0)


@dataclass(frozen=True)
class Trend(Claim):
    """Our figure rises along rows, or falls where `sign` is -1: the slope of its straight line over `at`. `figure`: what is
    fitted of each row and seed. `theirs`: the paper's slope, if it has the numbers."""

    rows: Sequence[str]
    at: Sequence[float]
    figure: Callable[[Found, str], list[float]]
    sign: int
    theirs: float | None = None

    def paper(self, numbers: Numbers) -> float | None:
        return self.theirs

    def ours(self, found: Found) -> Interval:
        columns = zip(*(self.figure(found, row) for row in self.rows), strict=True)
        return intervals.of_mean([float(np.polyfit(self.at, values, 1)[0]) for values in columns])

    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        return rule.direction(self.ours(found), self.sign)


@dataclass(frozen=True)
class Fits(Claim):
    """A figure of all rows together, one for each seed, lies between two numbers: how well a law fits, say."""

    figure: Callable[[Found], list[float]]
    low: float
    high: float

    def paper(self, numbers: Numbers) -> float | None:
        return None

    def ours(self, found: Found) -> Interval:
        return intervals.of_mean(self.figure(found))

    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        return rule.value(self.ours(found), self.low, self.high)


@dataclass(frozen=True)
class Between(Claim):
    """A row's figure lies between two numbers, or is one: the range that rounds to it. `theirs`: the paper's number, the middle
    if None."""

    column: str
    row: str
    low: float
    high: float
    theirs: float | None = None

    def paper(self, numbers: Numbers) -> float:
        return (self.low + self.high) / 2 if self.theirs is None else self.theirs

    def ours(self, found: Found) -> Interval:
        return intervals.of_mean(found.of(self.row, self.column))

    def verdict(self, numbers: Numbers, found: Found) -> Verdict:
        return rule.value(self.ours(found), self.low, self.high)
