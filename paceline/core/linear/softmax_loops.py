"""The compiled loops of softmax over sparse rows: a row steps the weights of all classes. As those of `linear_loops`, they
release the GIL and check nothing; labels are class numbers, and weights are (classes, D)."""

import numpy as np
import numpy.typing as npt
from numba import types

from paceline.core.compiled import floats, inner_kernel, kernel, nothing, scalar
from paceline.core.linear.examples import Features, Longs, f32
from paceline.core.linear.linear_loops import AHEAD, ask_for, flag, rows_in
from paceline.core.values import Vector

Doubles = npt.NDArray[np.float64]
_doubles_out = types.Array(types.float64, 1, "C", aligned=False)
_classes_out = types.Array(types.float32, 2, "C", aligned=False)


@inner_kernel(nothing(*rows_in[:3], types.int64, _classes_out, flag, _doubles_out))
def _find_chances(
    starts: Longs, indices: Features, values: Vector, row: int, weights: Vector, intercept: bool, chances: Doubles
) -> None:
    """chances_c <- exp(z_c) / the sum of all exp(z), with z_c = x.w_c."""
    for c in range(len(chances)):
        chances[c] = weights[c, weights.shape[1] - 1] if intercept else 0.0
    for j in range(starts[row], starts[row + 1]):
        k, value = indices[j], values[j]
        for c in range(len(chances)):
            chances[c] += weights[c, k] * value
    most = chances.max()
    total = 0.0
    for c in range(len(chances)):
        chances[c] = np.exp(chances[c] - most)
        total += chances[c]
    for c in range(len(chances)):
        chances[c] /= total


@inner_kernel(nothing(*rows_in, _classes_out, floats, flag, _doubles_out, _classes_out))
def add_softmax_gradient(
    starts: Longs,
    indices: Features,
    values: Vector,
    labels: Vector,
    costs: Vector,
    rows: Longs,
    weights: Vector,
    decays: Vector,
    intercept: bool,
    chances: Doubles,
    sums: Vector,
) -> None:
    """sums <- sums + the gradients of the rows; `chances` (classes,) is scratch."""
    own, owed = len(decays) > 1, len(costs) > 1
    last = weights.shape[1] - 1
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        _find_chances(starts, indices, values, row, weights, intercept, chances)
        for c in range(len(chances)):
            slope = f32(chances[c] - (labels[row] == c)) * costs[row if owed else 0]
            for j in range(starts[row], starts[row + 1]):
                k = indices[j]
                sums[c, k] += slope * values[j] + decays[k if own else 0] * weights[c, k]
            if intercept:
                sums[c, last] += slope + decays[last if own else 0] * weights[c, last]


@kernel(nothing(*rows_in, types.int64, scalar, _classes_out, floats, flag, flag, _doubles_out, _classes_out))
def step_softmax_batches(
    starts: Longs,
    indices: Features,
    values: Vector,
    labels: Vector,
    costs: Vector,
    rows: Longs,
    batch_size: int,
    lr: f32,
    weights: Vector,
    decays: Vector,
    intercept: bool,
    is_mean: bool,
    chances: Doubles,
    sums: Vector,
) -> None:
    """A step for each batch. `sums` (as the weights) is 0 before and after; `chances` (classes,) is scratch."""
    last = weights.shape[1] - 1
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        add_softmax_gradient(starts, indices, values, labels, costs, batch, weights, decays, intercept, chances, sums)
        rate = lr / f32(len(batch)) if is_mean else lr
        for at in range(len(batch)):
            row = batch[at]
            for c in range(len(chances)):
                for j in range(starts[row], starts[row + 1]):
                    k = indices[j]
                    weights[c, k] -= rate * sums[c, k]
                    sums[c, k] = 0
                if intercept:
                    weights[c, last] -= rate * sums[c, last]
                    sums[c, last] = 0


@kernel(nothing(*rows_in, types.float64, _classes_out, floats, floats, flag, _doubles_out))
def step_softmax_fitted(
    starts: Longs,
    indices: Features,
    values: Vector,
    labels: Vector,
    costs: Vector,
    rows: Longs,
    lr: float,
    weights: Vector,
    decays: Vector,
    rates: Vector,
    intercept: bool,
    chances: Doubles,
) -> None:
    """As `step_fitted`: a step for each row, weight k at the rate lr rates_k. The loss curves by at most 1/2 along the margins
    [Böhning 1992], so no step is longer than 2 / (x.x at the rates); the pull towards zero follows, implicitly."""
    own, owed = len(decays) > 1, len(costs) > 1
    last = weights.shape[1] - 1
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        length = float(rates[last]) if intercept else 0.0
        for j in range(starts[row], starts[row + 1]):
            length += rates[indices[j]] * values[j] * values[j]
        _find_chances(starts, indices, values, row, weights, intercept, chances)
        reach = min(lr * costs[row if owed else 0], 2.0 / length) if length > 0 else 0.0
        for c in range(len(chances)):
            move = reach * (chances[c] - (labels[row] == c))
            for j in range(starts[row], starts[row + 1]):
                k = indices[j]
                rate = float(rates[k])
                weights[c, k] = (weights[c, k] - rate * move * values[j]) / (1.0 + lr * rate * decays[k if own else 0])
            if intercept:
                rate = float(rates[last])
                weights[c, last] = (weights[c, last] - rate * move) / (1.0 + lr * rate * decays[last if own else 0])
