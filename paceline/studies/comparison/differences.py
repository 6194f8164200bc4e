"""By how much one training is above another, seed by seed, and whether that is more than noise."""

from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, nan

from paceline.base.intervals import FEWEST, Interval, of_mean
from paceline.studies.comparison.sides import Of, Side

UNKNOWN = Interval(nan, -inf, inf)


class Verdict(StrEnum):
    """What the runs say about a difference."""

    BETTER = "better"
    WORSE = "worse"
    MORE = "more"
    """Of a figure that is neither good nor bad by itself."""
    LESS = "less"
    SAME = "the same"
    NOISE = "within the noise"
    CANNOT = "cannot tell"


@dataclass(frozen=True, slots=True)
class Difference:
    """Of a side's figure to the first side's."""

    interval: Interval
    """The mean over the seeds that both have, and what holds it with 95 %; infinite where there are too few."""
    seeds: int
    verdict: Verdict

    @property
    def is_told(self) -> bool:
        """Whether there is an interval."""
        return self.verdict is not Verdict.CANNOT

    @property
    def said(self) -> str:
        """The verdict, and why the runs can't tell."""
        if self.is_told:
            return str(self.verdict)
        if self.seeds >= FEWEST:
            return f"{self.verdict}: a run's figure is no number"
        why = {0: "no seed in common", 1: "one seed"}.get(self.seeds, f"{self.seeds} seeds")
        return f"{self.verdict}: {why}"


def difference(of: Of, sign: int, first: Side, other: Side) -> Difference | None:
    """`sign`: 1 where more is better, -1 where less is, 0 where neither is. None where a side has no such figure."""
    ours, theirs = other.by_seed(of), first.by_seed(of)
    if not ours or not theirs:
        return None
    both = sorted(ours.keys() & theirs.keys())
    if not both:
        return Difference(UNKNOWN, 0, Verdict.CANNOT)
    values = [ours[seed] - theirs[seed] for seed in both]
    interval = of_mean(values) if all(map(isfinite, values)) else UNKNOWN
    return Difference(interval, len(both), _verdict(interval, sign))


def _verdict(found: Interval, sign: int) -> Verdict:
    if not (isfinite(found.low) and isfinite(found.high)):
        return Verdict.CANNOT
    if found.low == found.high == 0:
        return Verdict.SAME
    if found.low <= 0 <= found.high:
        return Verdict.NOISE
    if not sign:
        return Verdict.MORE if found.low > 0 else Verdict.LESS
    return Verdict.BETTER if found.low * sign > 0 else Verdict.WORSE
