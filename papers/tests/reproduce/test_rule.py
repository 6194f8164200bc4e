"""The rule by which a paper's number agrees with ours, on cases worked out on paper."""

from math import inf, nan

import numpy as np
import pytest

from paceline.base.intervals import Interval, of_mean
from paceline_papers.reproduce.claims import Above, Apart, Between, Fits, MoreSpread, RunFigures, Trend, Varies
from paceline_papers.reproduce.rule import Verdict, direction, value
from paceline_papers.reproduce.spread import of_deviations, of_spread


class Given(RunFigures):
    """Figures of rows, as told."""

    def __init__(self, **rows: list[float]) -> None:
        self._rows = rows

    def of(self, row: str, column: str) -> list[float]:
        return self._rows[row]


def test_the_interval_of_a_mean_is_students() -> None:
    found = of_mean([1.0, 2.0, 3.0])

    assert found.middle == 2.0
    assert found.high - found.middle == pytest.approx(
        4.3027 / 3**0.5, rel=1e-4
    )  # t of 2 degrees of freedom, deviation 1
    assert found.middle - found.low == pytest.approx(found.high - found.middle)


def test_two_seeds_tell_nothing() -> None:
    assert of_mean([1.0, 1.0]) == Interval(1.0, -inf, inf)
    assert direction(of_mean([5.0, 6.0]), 1) is Verdict.CANNOT
    assert value(of_mean([5.0, 6.0]), 5, 6) is Verdict.CANNOT


def test_one_seed_has_no_deviation_and_tells_nothing() -> None:
    found = of_deviations([1.0], [2.0])

    assert (found.low, found.high) == (0.0, inf)
    assert direction(found, 1, zero=1.0) is Verdict.CANNOT


def test_the_interval_of_a_ratio_of_deviations_is_fishers() -> None:
    found = of_deviations([0.0, 2.0, 4.0, 6.0, 8.0], [0.0, 1.0, 2.0, 3.0, 4.0])

    assert found.middle == pytest.approx(2.0)
    assert found.low == pytest.approx(2.0 / 9.6045**0.5, rel=1e-4)  # F of 4 and 4 degrees of freedom
    assert found.high == pytest.approx(2.0 * 9.6045**0.5, rel=1e-4)


def test_the_interval_of_a_deviation_is_that_of_chi_squared() -> None:
    found = of_spread([8.0, 9.0, 10.0, 11.0, 12.0])

    assert found.middle == pytest.approx(0.1 * 2.5**0.5)
    assert found.low == pytest.approx(found.middle * (4 / 11.1433) ** 0.5, rel=1e-4)  # 4 degrees of freedom
    assert found.high == pytest.approx(found.middle * (4 / 0.48442) ** 0.5, rel=1e-4)


def test_runs_vary_where_their_deviation_is_surely_above_a_share_of_the_mean() -> None:
    found = Given(row=[8.0, 9.0, 10.0, 11.0, 12.0])

    verdicts = [Varies("", {}, "", "row", least).verdict(found, {}) for least in (0.09, 0.2, 0.5)]

    assert verdicts == [Verdict.AGREES, Verdict.CANNOT, Verdict.DOES_NOT]


def test_a_range_with_one_side_has_no_end_on_the_other() -> None:
    found = Given(row=[0.1, 0.0, 2.0], other=[0.0, 0.0, 0.0])  # never below 0, but its interval is

    assert of_mean(found.of("row", "")).low < 0
    assert Apart("", {}, "", "row", "other", low=-inf, high=4.0).verdict(found, {}) is Verdict.AGREES
    assert Apart("", {}, "", "row", "other", low=0.0, high=4.0).verdict(found, {}) is Verdict.CANNOT


def test_the_slope_of_the_papers_numbers_stands_next_to_ours() -> None:
    claim = Trend("", {}, ["a", "b"], [1, 2], lambda found, row: found.of(row, "epochs"), 1)

    assert claim.paper({"a": {"epochs": 22}, "b": {"epochs": 29}}) == pytest.approx(7)
    assert claim.paper({"a": {"epochs": 22}}) is None


@pytest.mark.parametrize(
    ("low", "high", "sign", "verdict"),
    [
        (0.1, 0.3, 1, Verdict.AGREES),
        (-0.3, -0.1, 1, Verdict.DOES_NOT),
        (-0.1, 0.3, 1, Verdict.CANNOT),
        (0.1, 0.3, -1, Verdict.DOES_NOT),
        (-0.3, -0.1, -1, Verdict.AGREES),
    ],
)
def test_a_direction_needs_the_whole_interval_on_one_side(low: float, high: float, sign: int, verdict: Verdict) -> None:
    assert direction(Interval((low + high) / 2, low, high), sign) is verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.019, 0.02, 0.021], 1.0, Verdict.NO_EFFECT),  # of the paper's sign, and thirty times smaller
        ([-0.021, -0.02, -0.019], 1.0, Verdict.NO_EFFECT),
        ([0.019, 0.02, 0.021], -1.0, Verdict.NO_EFFECT),
        ([0.019, 0.02, 0.021], 0.1, Verdict.AGREES),
        ([-0.3, 0.02, 0.3], 1.0, Verdict.CANNOT),  # may be large
        ([0.0, 0.0, 0.0], 0.0, Verdict.CANNOT),  # the paper has none either
        ([0.01, 0.02], 1.0, Verdict.CANNOT),
    ],
)
def test_an_effect_that_is_surely_less_than_a_tenth_of_the_papers_is_none(
    ours: list[float], theirs: float, verdict: Verdict
) -> None:
    found = Given(upper=ours, lower=[0.0] * len(ours))

    assert (
        Above("", {}, "is", "upper", "lower").verdict(found, {"upper": {"is": theirs}, "lower": {"is": 0.0}}) is verdict
    )


def test_deviations_that_are_as_large_have_no_effect_where_the_papers_are_far_apart() -> None:
    rng = np.random.default_rng(0)
    found = Given(upper=list(rng.standard_normal(100)), lower=list(rng.standard_normal(100)))

    assert MoreSpread("", {}, "", "upper", "lower", 8.0).verdict(found, {}) is Verdict.NO_EFFECT
    assert MoreSpread("", {}, "", "upper", "lower", 1.5).verdict(found, {}) is Verdict.CANNOT


def test_a_sentence_with_a_range_is_judged_by_it_alone() -> None:
    numbers = {"upper": {"is": 1.0}, "lower": {"is": 0.0}}
    small = Given(upper=[0.019, 0.02, 0.021], lower=[0.0, 0.0, 0.0])

    assert Apart("", {}, "is", "upper", "lower", low=0.0, high=0.1).verdict(small, numbers) is Verdict.AGREES


def test_rows_are_compared_seed_by_seed() -> None:
    found = Given(upper=[1.1, 5.1, 9.12], lower=[1.0, 5.0, 9.0])  # the seeds differ far more than the rows

    assert Above("", {}, "", "upper", "lower").verdict(found, {}) is Verdict.AGREES
    assert Above("", {}, "", "lower", "upper").verdict(found, {}) is Verdict.DOES_NOT


def test_the_papers_difference_is_that_of_its_table() -> None:
    claim = Above("", {}, "accuracy", "a", "b")

    assert claim.paper({"a": {"accuracy": 0.75}, "b": {"accuracy": 0.5}}) == 0.25
    assert claim.paper({"a": {"accuracy": 0.75}}) is None


def test_a_planted_wrong_number_of_the_paper_changes_the_verdict() -> None:
    found = Given(row=[9.9, 10.0, 10.1])

    assert Between("", {}, "", "row", 9.5, 10.5).verdict(found, {}) is Verdict.AGREES
    assert Between("", {}, "", "row", 10.5, 11.5).verdict(found, {}) is Verdict.DOES_NOT


def test_five_seeds_tell_a_ratio_of_deviations_only_where_it_is_large() -> None:
    calm, wild = [0.0, 1.0, 2.0, 3.0, 4.0], [0.0, 4.0, 8.0, 12.0, 16.0]

    assert MoreSpread("", {}, "", "wild", "calm", 3.03).verdict(Given(wild=wild, calm=calm), {}) is Verdict.AGREES
    twice = [2 * number for number in calm]
    assert MoreSpread("", {}, "", "wild", "calm", 3.03).verdict(Given(wild=twice, calm=calm), {}) is Verdict.CANNOT


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(1.2, 1.8, Verdict.AGREES), (0.2, 0.8, Verdict.DOES_NOT), (0.8, 1.2, Verdict.CANNOT), (0.0, 9.0, Verdict.CANNOT)],
)
def test_a_value_agrees_only_where_the_whole_interval_is_in_its_range(
    low: float, high: float, verdict: Verdict
) -> None:
    assert value(Interval((low + high) / 2, low, high), 1.0, 2.0) is verdict


def test_a_trend_is_the_slope_of_each_seed() -> None:
    rising = Given(a=[1.0, 2.0, 3.0], b=[2.0, 3.1, 4.0], c=[3.0, 4.0, 5.1])

    def trend(sign: int) -> Trend:
        return Trend("", {}, ["a", "b", "c"], [0, 1, 2], lambda found, row: found.of(row, ""), sign)

    assert trend(1).ours(rising).middle == pytest.approx(1.0, abs=0.05)
    assert trend(1).verdict(rising, {}) is Verdict.AGREES
    assert trend(-1).verdict(rising, {}) is Verdict.DOES_NOT


@pytest.mark.parametrize("missing", [inf, nan])
def test_runs_without_a_figure_tell_nothing(missing: float) -> None:
    found = Given(row=[1.0, missing, 3.0], other=[0.0, 0.1, 0.2])

    for claim in (
        Above("", {}, "", "row", "other"),
        Varies("", {}, "", "row", 0.1),
        MoreSpread("", {}, "", "row", "other", 1.0),
        Fits("", {}, lambda each: each.of("row", ""), 0.0, inf),
        Trend("", {}, ["row", "other"], [0, 1], lambda found, row: found.of(row, ""), 1),
    ):
        assert claim.verdict(found, {}) is Verdict.CANNOT


def test_a_tie_is_on_neither_side() -> None:
    tie = Given(row=[0.5, 0.5, 0.5])

    for low, high in ((0.5, inf), (-inf, 0.5)):
        assert Between("", {}, "", "row", low, high).verdict(tie, {}) is Verdict.CANNOT
    assert Between("", {}, "", "row", 0.5, 0.5).verdict(tie, {}) is Verdict.AGREES


def test_a_law_fits_where_its_measure_is_in_range() -> None:
    found = Given(row=[0.95, 0.96, 0.97])

    assert Fits("", {}, lambda each: each.of("row", ""), 0.9, 1.0).verdict(found, {}) is Verdict.AGREES
    assert Fits("", {}, lambda each: each.of("row", ""), 0.99, 1.0).verdict(found, {}) is Verdict.DOES_NOT
