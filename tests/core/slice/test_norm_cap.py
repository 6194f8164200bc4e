"""A push above the cap is scaled down to it; any other keeps its bits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from paceline.core.optimizers.clip import l2_norm
from paceline.core.slice.norm_cap import NormCap
from paceline.core.values import AS_SET, Base, Dense, Empty, Manner, Push, Sparse, Update, Vector

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
VECTORS = arrays.arrays(np.float32, st.integers(0, 50), elements=FINITE)
CAPS = st.floats(1e-6, 1e6)


def f32(*values: float) -> Vector:
    return np.array(values, np.float32)


def push(update: Update, manner: Manner = AS_SET) -> Push:
    return Push("worker-0", 1, 1, update, 1, Base(1, 0), 0, 0.0, manner)


@pytest.mark.parametrize(
    ("values", "cap", "kept"),
    [((3, 4), 1, (0.6, 0.8)), ((3, 4), 5, (3, 4)), ((0.3, 0.4), 1, (0.3, 0.4)), ((0, 0), 1, (0, 0)), ((), 1, ())],
)
def test_a_push_above_the_cap_is_scaled_down_to_it(
    values: tuple[float, ...], cap: float, kept: tuple[float, ...]
) -> None:
    """Worked out: [3, 4] has norm 5, so with a cap of 1 a fifth of it is left."""
    dense, few = f32(*values), f32(*values)
    places = np.arange(len(values), dtype=np.int64) * 3

    was_capped = [NormCap(cap).hold(push(update)) for update in (Dense(dense), Sparse(places, few, 100))]

    assert was_capped == [kept != values] * 2
    assert dense.tolist() == few.tolist() == pytest.approx(f32(*kept).tolist(), rel=1e-6)


@given(VECTORS, CAPS)
def test_the_norm_keeps_the_cap_and_the_direction_stays(values: Vector, cap: float) -> None:
    before, norm = values.copy(), l2_norm(values)

    was_capped = NormCap(cap).hold(push(Dense(values)))

    assert was_capped == (norm > cap)
    assert l2_norm(values) <= cap
    if not was_capped:
        assert values.tobytes() == before.tobytes()
    else:
        assert np.allclose(values, before.astype(np.float64) * (cap / norm), rtol=1e-6, atol=1e-44)


@given(VECTORS, CAPS)
def test_a_push_that_is_sent_again_is_scaled_to_the_same_bits(values: Vector, cap: float) -> None:
    again = values.copy()

    NormCap(cap).hold(push(Dense(values)))
    NormCap(cap).hold(push(Dense(again)))

    assert values.tobytes() == again.tobytes()


def test_the_largest_values_that_there_are_fit_under_the_smallest_caps() -> None:
    values = np.full(1000, np.finfo(np.float32).max, np.float32)

    assert NormCap(1e-3).hold(push(Dense(values)))

    assert l2_norm(values) == pytest.approx(1e-3, rel=1e-6)
    assert l2_norm(values) <= 1e-3


def test_an_empty_push_has_no_norm() -> None:
    assert not NormCap(1e-9).hold(push(Empty(7)))


@pytest.mark.parametrize(("rates", "left"), [((), 0.2), ((1.0,), 0.2), ((0.5, 4.0), 0.05), ((0.0,), 0.2)])
def test_what_a_script_multiplies_its_rate_by_makes_the_push_longer(rates: tuple[float, ...], left: float) -> None:
    """Otherwise a rate of a thousand times would pass the cap by."""
    values = f32(3, 4)

    NormCap(1.0).hold(push(Dense(values), Manner(rates)))

    assert values.tolist() == pytest.approx([3 * left, 4 * left], rel=1e-6)


def test_sparse_folding_knows_no_such_factor_so_a_wrong_one_does_no_harm() -> None:
    values = f32(0.3, 0.4)

    NormCap(1.0).hold(push(Sparse(np.arange(2), values, 9), Manner((math.nan,))))

    assert values.tolist() == f32(0.3, 0.4).tolist()


def test_pushes_above_the_cap_are_counted_by_worker_and_the_share_forgets() -> None:
    cap = NormCap(1.0)
    for _ in range(100):
        cap.count("worker-0", True)
        cap.count("worker-1", False)

    found = cap.workers
    assert (found["worker-0"].pushes, found["worker-1"].pushes) == (100, 0)
    assert found["worker-0"].share > 0.8
    assert found["worker-1"].share == 0

    for _ in range(100):
        cap.count("worker-0", False)
        cap.count("worker-1", True)

    assert (cap.workers["worker-0"].pushes, cap.workers["worker-1"].pushes) == (100, 100)
    assert cap.workers["worker-0"].share < 0.2 < 0.8 < cap.workers["worker-1"].share
