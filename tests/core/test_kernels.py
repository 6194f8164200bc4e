"""The compiled loops, compared with the optimizers': the numbers they must give, and that their bits depend on nothing else."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core import kernels
from paceline.core.errors import BadPush
from paceline.core.values import Vector

f32 = np.float32
LENGTHS = st.integers(0, 300)


def numbers(length: int, seed: int = 0) -> Vector:
    return np.random.default_rng(seed).standard_normal(length, dtype=np.float32)


def bits(values: Vector) -> list[int]:
    return [int(pattern) for pattern in values.view(np.uint32)]


def unaligned(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same values one byte off any alignment and read-only, as a received message has them."""
    return np.frombuffer(b"x" + values.tobytes(), dtype=values.dtype, offset=1)


ELEMENTWISE: dict[str, Callable[[Vector, Vector, Vector], None]] = {
    "scale_into": lambda a, b, c: kernels.scale_into(a, b, 7.0),
    "add_scaled": lambda a, b, c: kernels.add_scaled(a, b, 7.1),
    "mix": lambda a, b, c: kernels.mix(a, b, 0.3),
    "plain_step": lambda a, b, c: kernels.plain_step(a, b, 0.1),
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@given(length=LENGTHS, cuts=st.lists(LENGTHS, max_size=4), offset=st.integers(0, 17))
def test_a_vector_cut_anywhere_has_the_bits_of_the_whole(name: str, length: int, cuts: list[int], offset: int) -> None:
    whole = [numbers(length + offset, seed)[offset:].copy() for seed in range(3)]
    parts = [numbers(length + offset, seed)[offset:] for seed in range(3)]
    edges = [0, *sorted(min(cut, length) for cut in cuts), length]

    ELEMENTWISE[name](*whole)
    for start, end in pairwise(edges):
        ELEMENTWISE[name](*(part[start:end] for part in parts))

    assert [bits(part) for part in parts] == [bits(array) for array in whole]


def test_a_gradient_may_lie_anywhere_in_a_received_message() -> None:
    weights, gradient = numbers(33, 1), numbers(33, 2)
    other = weights.copy()

    kernels.plain_step(weights, unaligned(gradient), 0.1)

    kernels.plain_step(other, gradient, 0.1)
    assert bits(weights) == bits(other)


# sums and mixing
def test_an_ordered_weighted_sum_has_the_bits_of_the_formula() -> None:
    total, first, second = np.empty(45, f32), numbers(45, 1), numbers(45, 2)

    kernels.scale_into(total, first, 3)
    kernels.add_scaled(total, second, 5)

    assert bits(total) == bits(first * f32(3) + second * f32(5))


def test_the_shat_example_mixes_to_its_numbers() -> None:
    local, pulled = np.array([0.8, 2.4], f32), np.array([0.9, 2.2], f32)

    kernels.plain_step(local, np.array([1, -2], f32), 0.1)
    kernels.mix(local, pulled, 0.679401)

    np.testing.assert_allclose(local, [0.83588, 2.32824], rtol=1e-5)


def test_alpha_one_copies_and_alpha_zero_touches_nothing() -> None:
    local, pulled = np.array([1e30, np.inf, 3], f32), np.array([1, 2, np.nan], f32)
    before = local.copy()

    kernels.mix(local, pulled, 0.0)
    assert bits(local) == bits(before)

    kernels.mix(local, pulled, 1.0)
    assert bits(local) == bits(pulled)


# screening
@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan, -np.nan])
@given(length=st.sampled_from([1, 2, 31, 16383, 16384, 16385, 40001]), place=st.floats(0, 1, exclude_max=True))
def test_one_value_that_is_not_finite_is_found_wherever_it_is(bad: float, length: int, place: float) -> None:
    values = np.full(length, np.finfo(f32).max, f32)
    assert kernels.all_finite(values)

    values[int(place * length)] = bad

    assert not kernels.all_finite(values)


def test_an_empty_vector_and_the_smallest_values_are_finite() -> None:
    assert kernels.all_finite(np.empty(0, f32))
    assert kernels.all_finite(np.array([0.0, -0.0, 1e-45, -1e-45, np.finfo(f32).min], f32))


# half precision
def test_every_fp16_value_decodes_to_numpys_bits() -> None:
    halves = np.arange(65536, dtype=np.uint16)
    out = np.empty(65536, f32)

    kernels.decode_fp16(unaligned(halves), out)

    assert bits(out) == bits(halves.view(np.float16).astype(f32))


def test_every_bf16_value_decodes_to_the_float32_with_its_upper_half() -> None:
    halves = np.arange(65536, dtype=np.uint16)
    out = np.empty(65536, f32)

    kernels.decode_bf16(halves, out)

    assert bits(out) == [half << 16 for half in range(65536)]


def around(edges: np.ndarray[Any, np.dtype[np.uint32]]) -> Vector:
    """The given bit patterns with both signs and their neighbours up to 3 steps away."""
    near = (edges[:, None].astype(np.int64) + np.arange(-3, 4)).ravel() & 0x7FFFFFFF
    return np.concatenate([near, near | 0x80000000]).astype(np.uint32).view(f32)


def as_numpy_fp16(values: Vector) -> list[int]:
    with np.errstate(over="ignore", under="ignore"):
        return [int(half) for half in values.astype(np.float16).view(np.uint16)]


def encoded(kernel: Callable[[Any, Any], None], values: Vector) -> list[int]:
    out = np.empty(len(values), np.uint16)
    kernel(values, out)
    return out.tolist()


def same_numbers(seen: list[int], expected: list[int], values: Vector) -> None:
    """Equal bits; of NaN only that it is one (processors differ in how they mark it)."""
    nan = np.isnan(values)
    got, want = np.array(seen, np.uint16), np.array(expected, np.uint16)
    assert got[~nan].tolist() == want[~nan].tolist()
    assert np.isnan(got[nan].view(np.float16)).all()
    assert ((got[nan] ^ want[nan]) & 0x8000 == 0).all()


def test_fp16_rounds_as_numpy_at_every_value_every_tie_and_every_edge() -> None:
    halves = np.arange(0x7C01, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves[-1] = 65536
    ties = (halves[:-1] + halves[1:]) / 2
    exact = np.concatenate([halves, ties]).astype(f32).view(np.uint32)
    values = around(np.concatenate([exact, np.array([0, 0x7F800000, 0x7FC00000, 0x7F7FFFFF, 0x7FFFFFFF], np.uint32)]))

    same_numbers(encoded(kernels.encode_fp16, values), as_numpy_fp16(values), values)


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=100))
def test_any_float32_becomes_numpys_fp16(patterns: list[int]) -> None:
    values = np.array(patterns, np.uint32).view(f32)

    same_numbers(encoded(kernels.encode_fp16, values), as_numpy_fp16(values), values)


def nearest_bf16(pattern: int) -> int:
    """The rule in whole numbers: the nearer upper half; of two equally near the even one."""
    upper, rest = divmod(pattern, 1 << 16)
    return upper + (rest > 0x8000 or (rest == 0x8000 and upper % 2 == 1))


@given(st.lists(st.integers(0, 2**32 - 1) | st.integers(0, 0xFFFF).map(lambda u: u << 16 | 0x8000), min_size=1))
def test_any_float32_becomes_the_nearest_bf16_and_nan_stays_nan(patterns: list[int]) -> None:
    values = np.array(patterns, np.uint32).view(f32)

    halves = encoded(kernels.encode_bf16, values)

    for pattern, half, value in zip(patterns, halves, values, strict=True):
        if np.isnan(value):
            assert half & 0x7FFF > 0x7F80
            assert half >> 15 == pattern >> 31
        else:
            assert half == nearest_bf16(pattern)


# refusals
def test_arrays_of_different_lengths_are_refused() -> None:
    short, long = np.zeros(3, f32), np.zeros(5, f32)
    calls: list[Callable[[], None]] = [
        lambda: kernels.scale_into(long, short, 1),
        lambda: kernels.add_scaled(long, short, 1),
        lambda: kernels.mix(long, short, 1),
        lambda: kernels.plain_step(long, short, 1),
        lambda: kernels.look_ahead(long, long, short, 0.9, 0.0),
        lambda: kernels.encode_fp16(long, np.zeros(3, np.uint16)),
        lambda: kernels.encode_bf16(long, np.zeros(3, np.uint16)),
        lambda: kernels.decode_fp16(np.zeros(3, np.uint16), long),
        lambda: kernels.decode_bf16(np.zeros(3, np.uint16), long),
    ]

    for call in calls:
        with pytest.raises(BadPush, match="pass equal lengths"):
            call()


def test_float64_is_refused_and_never_silently_converted() -> None:
    with pytest.raises(TypeError):
        kernels.plain_step(np.zeros(3, f32), np.zeros(3), 0.1)  # type: ignore[arg-type]
    with pytest.raises(BadPush, match="float64 can't be coded or screened; convert them to float32"):
        kernels.all_finite(np.zeros(3))  # type: ignore[arg-type]
    with pytest.raises(BadPush, match="convert them to float32"):
        kernels.encode_bf16(np.zeros(3), np.zeros(3, np.uint16))  # type: ignore[arg-type]
