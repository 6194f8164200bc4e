"""Trainings side by side: each one's figures, by how much it is above the first, seed by seed, and which of them the runs speak
for, since the difference is more than noise."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf, isfinite, nan
from statistics import fmean, stdev
from typing import Any

from paceline.base.intervals import FEWEST, Interval, of_mean
from paceline.core.chief.best_model import Measure
from paceline_studies.comparison.sides import Figure, Of, Side, differing

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
    def verdict_text(self) -> str:
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


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure of one side."""

    mean: float
    deviation: float | None
    """Standard deviation of the sample (n - 1); None of a single seed, or of what is no number."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What finished runs give together."""

    sides: Sequence[Side]
    """Differences are to the first one."""
    figures: Sequence[Figure]
    """The first one is the score that a training is chosen by."""
    measure: Measure
    split: str
    """The part of the data that trainings are chosen by."""
    is_by_policy: bool = False
    """Whether the names of the sides are the policies, in which alone they differ."""

    @property
    def seconds_are(self) -> str:
        """Whose seconds the runs have."""
        return "virtual" if self.sides[0].runs[0].is_simulated else "real"

    @property
    def settings(self) -> dict[str, list[Any]]:
        """Those that differ: a value for each side."""
        return differing(self.sides)

    def spread(self, side: Side, figure: Figure) -> Spread | None:
        """None where the side has no such figure."""
        values = list(side.by_seed(figure.of).values())
        if not values:
            return None
        known = len(values) > 1 and all(map(isfinite, values))
        return Spread(fmean(values), stdev(values) if known else None)

    def difference(self, side: Side, figure: Figure, to: Side | None = None) -> Difference | None:
        """The side's, to the first one or another; None where one of the two has no such figure."""
        return difference(figure.of, figure.sign, to or self.sides[0], side)

    @property
    def conclusion(self) -> str:
        """What the runs speak for, in words."""
        if len(self.sides) == 1:
            runs = len(self.sides[0].runs)
            return f"All {runs} runs have the same settings but the seed: what lies between them is noise."
        score, ranked = self.figures[0], self._ranked
        if not ranked:
            return f"No run has a {self.figures[0].title} that is a number."
        best = ranked[0]
        against = {side.name: self.difference(side, score, best) for side in ranked[1:]}
        untold = [name for name, found in against.items() if found and not found.is_told]
        level = [name for name, found in against.items() if found and found.verdict is not Verdict.WORSE]
        means = {side.name: spread.mean for side in ranked if (spread := self.spread(side, score))}
        highest = [name for name, mean in means.items() if mean == means[best.name]]
        said = f"By {score.title}, {' and '.join(highest)} {'is' if len(highest) == 1 else 'are'} best"
        if untold:
            return (
                f"{said}, but the runs can't tell whether that is more than noise, compared with {', '.join(untold)}: it takes "
                f"{FEWEST} seeds that both have trained."
            )
        if not level:
            return f"{said}, and that is more than noise."
        others = [name for name in level if name not in highest]
        noise = f"; within the noise of it: {', '.join(others)}" if others else ""
        return f"{said}{noise}. {self._quickest([best, *(side for side in ranked if side.name in level)])}"

    @property
    def _ranked(self) -> list[Side]:
        """Those with a score, the best one first."""
        score = self.figures[0]
        means = [(found.mean, side) for side in self.sides if (found := self.spread(side, score))]
        known = [(mean, side) for mean, side in means if isfinite(mean)]
        return [side for _, side in sorted(known, key=lambda each: -score.sign * each[0])]

    def _quickest(self, level: Sequence[Side]) -> str:
        time = next((figure for figure in self.figures if figure.key == "seconds"), None)
        means = [(found.mean, side.name) for side in level if time and (found := self.spread(side, time))]
        if not time or not means:
            return ""
        seconds, name = min(means)
        return f"Of these {name} takes the least time ({time.told(seconds)} s)."

    def plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "by": self.figures[0].key,
            "better": self.measure.direction,
            "seconds_are": self.seconds_are,
            "first": self.sides[0].name,
            "conclusion": self.conclusion,
            "sides": [self._plain(number, side) for number, side in enumerate(self.sides)],
        }

    def _plain(self, number: int, side: Side) -> dict[str, Any]:
        figures = {figure.key: self._plain_figure(side, figure, number > 0) for figure in self.figures}
        return {
            "name": side.name,
            "runs": [{"run": run.name, "folder": str(run.folder.path), "seed": run.seed} for run in side.runs],
            "settings": {key: values[number] for key, values in self.settings.items()},
            "figures": figures,
        }

    def _plain_figure(self, side: Side, figure: Figure, compared: bool) -> dict[str, Any] | None:
        spread = self.spread(side, figure)
        if spread is None:
            return None
        found = self.difference(side, figure) if compared else None
        return {
            "mean": _finite(spread.mean),
            "deviation": _finite(spread.deviation),
            "by_seed": {str(seed): _finite(value) for seed, value in side.by_seed(figure.of).items()},
            "difference": found
            and {
                "mean": _finite(found.interval.middle),
                "low": _finite(found.interval.low),
                "high": _finite(found.interval.high),
                "seeds": found.seeds,
                "verdict": found.verdict,
            },
        }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity."""
    return value if value is not None and isfinite(value) else None
