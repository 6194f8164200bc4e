"""By how much one training is above another, and whether that is more than noise: cases worked out on paper."""

from math import inf, nan
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.base.intervals import Interval
from paceline.launch.folder.run_folder import RunFolder
from paceline_studies.comparison.comparison import Difference, Verdict, difference
from paceline_studies.comparison.finished import Finished
from paceline_studies.comparison.sides import Side


class Known(Finished):
    """A run of which a score and a seed are known."""

    def __init__(self, seed: int, score: float | None) -> None:
        super().__init__(RunFolder(Path(f"seed-{seed}")), f"seed-{seed}")
        self.__dict__["known"] = seed, score

    @property
    def seed(self) -> int:
        return int(self.__dict__["known"][0])


def score(run: Finished) -> float | None:
    found: float | None = run.__dict__["known"][1]
    return found


def side(name: str, *scores: float | None, seed: int = 0) -> Side:
    return Side(name, [Known(number, value) for number, value in enumerate(scores, seed)])


def found(first: Side, other: Side, sign: int = 1) -> Difference:
    result = difference(score, sign, first, other)
    assert result is not None
    return result


def test_a_difference_that_is_larger_than_its_spread_is_better_or_worse() -> None:
    lower, higher = side("a", 1.0, 2.0, 3.0), side("b", 2.0, 3.1, 3.9)

    assert found(lower, higher).verdict is Verdict.BETTER
    assert found(higher, lower).verdict is Verdict.WORSE
    assert found(lower, higher, sign=-1).verdict is Verdict.WORSE
    assert found(lower, higher, sign=0).verdict is Verdict.MORE


def test_the_interval_is_that_of_the_differences_seed_by_seed() -> None:
    result = found(side("a", 1.0, 5.0, 9.0), side("b", 2.0, 7.0, 12.0))

    assert result.interval.middle == pytest.approx(2)
    assert result.interval.high == pytest.approx(2 + 4.303 * 1 / 3**0.5, abs=1e-3)  # Student's t for three pairs
    assert result.verdict is Verdict.NOISE


def test_seeds_that_only_one_of_them_has_do_not_count() -> None:
    result = found(side("a", 1.0, 2.0, 3.0, 4.0), side("b", 2.0, 3.0, 4.0, 5.0, seed=1))

    assert result.seeds == 3
    assert result.interval == Interval(0.0, 0.0, 0.0)
    assert result.verdict is Verdict.SAME


def test_too_few_seeds_can_not_tell_and_say_why() -> None:
    assert found(side("a", 1.0), side("b", 2.0)).verdict_text == "cannot tell: one seed"
    assert found(side("a", 1.0, 2.0), side("b", 2.0, 9.0)).verdict_text == "cannot tell: 2 seeds"
    assert found(side("a", 1.0), side("b", 2.0, seed=7)).verdict_text == "cannot tell: no seed in common"
    assert found(side("a", 1.0), side("b", 2.0)).interval == Interval(1.0, -inf, inf)


def test_a_model_that_is_no_number_can_not_be_told() -> None:
    result = found(side("a", 1.0, 2.0, nan), side("b", 2.0, 3.0, 4.0))

    assert result.verdict_text == "cannot tell: a run's figure is no number"


def test_a_figure_that_one_of_them_does_not_have_is_not_compared() -> None:
    assert difference(score, 1, side("a", None), side("b", 2.0)) is None


def test_a_seed_that_was_trained_twice_counts_once_with_its_mean() -> None:
    twice = Side("b", [Known(0, 2.0), Known(0, 4.0), Known(1, 3.0), Known(2, 3.0)])

    assert found(side("a", 3.0, 3.0, 3.0), twice).verdict is Verdict.SAME


scores = st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6)


@given(scores, scores)
def test_two_sides_judge_each_other_in_opposite_ways(first: list[float], second: list[float]) -> None:
    opposite = {Verdict.BETTER: Verdict.WORSE, Verdict.WORSE: Verdict.BETTER}
    one, two = side("a", *first), side("b", *second)

    there, back = found(one, two).verdict, found(two, one).verdict

    assert back is opposite.get(there, there)
