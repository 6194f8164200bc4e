"""Clipping: which norms are limited to what, and the norm itself."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.optimizers.clip import Clip, l2_norm
from paceline.core.settings.config import ClipConfig


def clip(**limits):
    return Clip(ClipConfig(**limits))


def f32(*values):
    return np.array(values, dtype=np.float32)


@pytest.mark.parametrize(("gradient", "clipped"), [((3, 4), (0.6, 0.8)), ((0.3, 0.4), (0.3, 0.4))])
def test_a_gradient_above_the_limit_is_scaled_down_to_it(gradient, clipped):
    """Worked out: [3, 4] to [.6, .8], [.3, .4] unchanged, for a limit of 1."""
    g = f32(*gradient)

    assert g * clip(norm=1).factor(l2_norm(g)) == pytest.approx(f32(*clipped))


def test_a_gradient_in_parts_is_scaled_in_place_by_the_norm_of_all_of_it():
    one, parts = clip(norm=1), (f32(30), f32(40))

    assert [one.hold(parts, 0.1), one.hold(parts, 0.1)] == [True, False]
    assert np.concatenate(parts) == pytest.approx([6, 8])


def test_limits_are_of_the_gradients_that_the_settings_name():
    settings = ClipConfig(norm=1, of="mean")
    assert [Clip(settings).limits, Clip(settings, "mean").limits, Clip(ClipConfig(norm=1), "mean").limits] == [
        False,
        True,
        False,
    ]


def test_without_a_limit_nothing_is_clipped():
    assert clip().factor(1e30) == 1
    assert [one.limits for one in (clip(), clip(norm=1), clip(quantile=0.5))] == [False, True, True]


def test_a_norm_of_zero_is_no_division_by_it():
    assert clip(norm=1).factor(0.0) == 1


def test_the_quantile_limits_nothing_before_20_norms_are_seen():
    one = clip(quantile=0.5)

    factors = [one.factor(norm) for norm in range(1, 22)]

    assert factors[:19] == [1] * 19
    assert factors[19:] == pytest.approx([10.5 / 20, 11 / 21])  # medians of 1 to 20 and of 1 to 21


def test_the_quantile_is_of_the_last_200_norms_before_clipping():
    one = clip(quantile=0.5)
    for norm in [1000.0] * 500 + [1.0] * 199:
        one.factor(norm)

    assert one.factor(4.0) == pytest.approx(1 / 4)
    assert list(one._seen).count(1000.0) == 0


def test_of_two_limits_the_smaller_holds():
    low, high = clip(norm=0.5, quantile=0.5), clip(norm=100, quantile=0.5)
    for one in (low, high):
        for _ in range(30):
            one.factor(1.0)

    assert [low.factor(10.0), high.factor(10.0)] == pytest.approx([0.05, 0.1])


def test_a_fixed_limit_holds_from_the_first_norm_on_beside_a_quantile():
    assert clip(norm=1, quantile=0.5).factor(10.0) == pytest.approx(0.1)


@pytest.mark.parametrize("norm", [math.inf, math.nan])
def test_a_norm_that_is_not_finite_is_neither_clipped_to_zero_nor_remembered(norm):
    one = clip(norm=1, quantile=0.5)

    assert one.factor(norm) == 1
    assert len(one._seen) == 0


@given(st.lists(st.floats(0, 1e30), min_size=1, max_size=60), st.floats(0.01, 0.99))
def test_a_factor_is_above_0_and_at_most_1(norms, quantile):
    one = clip(norm=1e-3, quantile=quantile)

    for norm in norms:
        factor = one.factor(norm)
        assert 0 <= factor <= 1
        assert factor * norm <= 1e-3 * (1 + 1e-9)


# the norm
@pytest.mark.parametrize("length", [0, 1, 8191, 8192, 8193, 100_003])
def test_the_norm_is_that_of_float64(length):
    vector = np.random.default_rng(length).standard_normal(length).astype(np.float32)

    assert l2_norm(vector) == pytest.approx(math.sqrt(math.fsum(float(x) ** 2 for x in vector)), rel=1e-14)


def test_the_norm_of_a_model_of_23_million_elements_is_exact():
    assert l2_norm(np.full(23_500_000, 3.0, dtype=np.float32)) == math.sqrt(9 * 23_500_000)


@pytest.mark.parametrize(("element", "norm"), [(3e38, 6e38), (1e-38, 2e-38), (1e-45, 2.802597e-45)])
def test_elements_whose_squares_float32_can_not_hold_are_counted(element, norm):
    assert l2_norm(f32(*[element] * 4)) == pytest.approx(norm, rel=1e-6, abs=0)


@pytest.mark.parametrize(("element", "norm"), [(math.inf, math.inf), (-math.inf, math.inf), (math.nan, math.nan)])
def test_a_norm_tells_of_elements_that_are_not_finite(element, norm):
    assert l2_norm(f32(1, element)) == pytest.approx(norm, nan_ok=True)
