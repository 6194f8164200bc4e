"""The optimizers' compiled loops: their bits are those of the formula in float32, wherever the arrays lie."""

from collections.abc import Callable

import numpy as np
import pytest

from paceline.core.errors import BadPush
from paceline.core.optimizers import optimizer_loops as loops
from paceline.core.values import Vector

f32 = np.float32


def numbers(seed: int, length: int = 1003) -> Vector:
    return np.random.default_rng(seed).standard_normal(length, dtype=np.float32)


def bits(values: Vector) -> list[int]:
    return [int(pattern) for pattern in values.view(np.uint32)]


# no loop may use fused multiply-add or an approximate root or division: the bits must be every processor's
@pytest.mark.parametrize("nesterov", [False, True])
def test_a_step_of_sgd_has_the_bits_of_its_formula(nesterov: bool) -> None:
    weights, gradient, slot = numbers(1), numbers(2), numbers(3)
    slope = gradient * f32(0.25) + f32(1e-4) * weights
    expected_slot = f32(0.9) * slot + slope
    expected = weights - f32(0.1) * (slope + f32(0.9) * expected_slot if nesterov else expected_slot)

    loops.sgd(weights, weights, gradient, slot, 0.25, 0.1, 0.9, 1e-4, nesterov)

    assert bits(slot) == bits(expected_slot)
    assert bits(weights) == bits(expected)


def test_a_step_without_momentum_has_the_bits_of_one_with_momentum_zero() -> None:
    weights, gradient = numbers(1), numbers(2)
    out, other = np.empty_like(weights), np.empty_like(weights)

    loops.sgd_without_momentum(weights, out, gradient, 0.5, 0.1, 1e-4)
    loops.sgd(weights, other, gradient, np.zeros_like(weights), 0.5, 0.1, 0.0, 1e-4, False)

    assert bits(out) == bits(other)


def test_a_step_of_adagrad_has_the_bits_of_its_formula() -> None:
    weights, gradient, total = numbers(1), numbers(2), numbers(3) ** 2
    slope = gradient * f32(0.25) + f32(1e-4) * weights
    expected_total = total + slope * slope
    expected = weights - f32(0.1) * (slope / (np.sqrt(expected_total) + f32(1e-10)))

    loops.adagrad(weights, weights, gradient, total, 0.25, 0.1, 1e-10, 1e-4)

    assert bits(total) == bits(expected_total)
    assert bits(weights) == bits(expected)


def test_a_step_of_rmsprop_has_the_bits_of_its_formula() -> None:
    weights, gradient, square, slot = numbers(1), numbers(2), numbers(3) ** 2, numbers(4)
    slope = gradient * f32(0.25) + f32(1e-4) * weights
    expected_square = f32(0.99) * square + f32(1 - 0.99) * (slope * slope)
    expected_slot = f32(0.9) * slot + slope / (np.sqrt(expected_square) + f32(1e-8))
    expected = weights - f32(0.1) * expected_slot

    loops.rmsprop_with_momentum(weights, weights, gradient, square, slot, 0.25, 0.1, 0.99, 1e-8, 1e-4, 0.9)

    assert bits(square) == bits(expected_square)
    assert bits(slot) == bits(expected_slot)
    assert bits(weights) == bits(expected)


def test_rmsprop_without_momentum_has_the_bits_of_it_with_momentum_zero() -> None:
    weights, gradient, square = numbers(1), numbers(2), numbers(3) ** 2
    out, other, other_square = np.empty_like(weights), np.empty_like(weights), square.copy()

    loops.rmsprop(weights, out, gradient, square, 0.5, 0.1, 0.9, 1e-8, 1e-4)
    loops.rmsprop_with_momentum(
        weights, other, gradient, other_square, np.zeros_like(weights), 0.5, 0.1, 0.9, 1e-8, 1e-4, 0.0
    )

    assert bits(out) == bits(other)
    assert bits(square) == bits(other_square)


def test_a_step_of_adam_has_the_bits_of_its_formula() -> None:
    weights, gradient, mean, square = numbers(1), numbers(2), numbers(3), numbers(4) ** 2
    slope = gradient * f32(0.25) + f32(1e-4) * weights
    expected_mean = f32(0.9) * mean + f32(1 - 0.9) * slope
    expected_square = f32(0.999) * square + f32(1 - 0.999) * (slope * slope)
    divisor = np.sqrt(expected_square) * f32((1 - 0.999**3) ** -0.5) + f32(1e-8)
    expected = f32(0.99) * weights - f32(0.1 / (1 - 0.9**3)) * (expected_mean / divisor)

    loops.adam(weights, weights, gradient, mean, square, 0.25, 0.1, (0.9, 0.999), 1e-8, 3, 1e-4, 0.99)

    assert bits(mean) == bits(expected_mean)
    assert bits(square) == bits(expected_square)
    assert bits(weights) == bits(expected)


LONG, SHORT = np.ones(5, f32), np.ones(3, f32)
UNEQUAL: dict[str, Callable[[], None]] = {
    "sgd": lambda: loops.sgd(LONG, LONG, SHORT, LONG, 1, 0.1, 0.9, 0, False),
    "sgd, slot": lambda: loops.sgd(LONG, LONG, LONG, SHORT, 1, 0.1, 0.9, 0, True),
    "sgd_without_momentum": lambda: loops.sgd_without_momentum(LONG, SHORT, LONG, 1, 0.1, 0),
    "adagrad": lambda: loops.adagrad(LONG, LONG, LONG, SHORT, 1, 0.1, 1e-10, 0),
    "rmsprop": lambda: loops.rmsprop(LONG, LONG, LONG, SHORT, 1, 0.1, 0.9, 1e-8, 0),
    "rmsprop, slot": lambda: loops.rmsprop_with_momentum(LONG, LONG, LONG, LONG, SHORT, 1, 0.1, 0.9, 1e-8, 0, 0.9),
    "adam, mean": lambda: loops.adam(LONG, LONG, LONG, SHORT, LONG, 1, 0.1, (0.9, 0.999), 1e-8, 1, 0, 1),
    "adam, square": lambda: loops.adam(LONG, LONG, LONG, LONG, SHORT, 1, 0.1, (0.9, 0.999), 1e-8, 1, 0, 1),
}


@pytest.mark.parametrize("name", UNEQUAL)
def test_arrays_of_different_lengths_are_refused(name: str) -> None:
    with pytest.raises(BadPush, match="pass equal lengths"):
        UNEQUAL[name]()


def test_float64_is_refused_and_never_silently_converted() -> None:
    with pytest.raises(TypeError):
        loops.sgd_without_momentum(LONG.copy(), LONG.copy(), np.ones(5), 1, 0.1, 0)  # type: ignore[arg-type]
