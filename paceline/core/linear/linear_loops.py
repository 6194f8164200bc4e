"""The compiled loops of a linear model over sparse rows. They release the GIL and check nothing.

Rows are given as in `Examples`: starts, indices, values, labels (-1 or +1), costs (one for each row, or one for all). Where
there is an intercept it is the last weight, and every row has 1 there; it is treated like any feature."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import numpy.typing as npt
from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.extending import intrinsic

from paceline.core.compiled import floats, floats_out, inner_kernel, kernel, nothing, scalar
from paceline.core.linear.examples import Features, Longs
from paceline.core.values import Places, Vector


def _prefetch(_: Any, array: Any, index: Any) -> Any:
    """The type of such a call, and what writes its code."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(array)(context, builder, arguments[0]).data
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = builder.module.declare_intrinsic("llvm.prefetch", [byte], kind)
        place = builder.bitcast(builder.gep(data, [arguments[1]]), byte)
        read, keep, in_data_cache = (ir.Constant(number, value) for value in (0, 3, 1))
        builder.call(function, [place, read, keep, in_data_cache])
        return context.get_dummy_value()

    return types.void(array, index), generate


prefetch = cast(Callable[[Any, Any], None], intrinsic(_prefetch))
"""In a compiled loop, prefetch(array, index): begins to load the cache line of array[index] and waits for nothing. Of use
where a loop jumps about in memory, as over rows in random order: the processor can't guess where it will go next."""


f32 = np.float32
HINGE, LOGISTIC, SQUARED_HINGE = range(3)
LOSSES = {"hinge": HINGE, "logistic": LOGISTIC, "squared_hinge": SQUARED_HINGE, "softmax": LOGISTIC}
"""Of two classes; there softmax is the logistic loss."""
_longs = types.Array(types.int64, 1, "C", readonly=True, aligned=False)
_features = types.Array(types.uint32, 1, "C", readonly=True, aligned=False)
_features_out = types.Array(types.uint32, 1, "C", aligned=False)
_flags = types.Array(types.boolean, 1, "C", readonly=True, aligned=False)
_flags_out = types.Array(types.boolean, 1, "C", aligned=False)
rows_in = (_longs, _features, floats, floats, floats, _longs)
flag = types.boolean


AHEAD = 2
"""Rows that are asked for before their turn."""
_LINE = 16
"""float32 values or features in a cache line."""


@inner_kernel(nothing(_longs, _features, floats, _longs, types.int64))
def ask_for(starts: Longs, indices: Features, values: Vector, rows: Longs, at: int) -> None:
    """Begins to load rows[at], if there is one: half of the time of a pass in random order went into waiting for rows."""
    if at < len(rows):
        row = rows[at]
        for j in range(starts[row], starts[row + 1], _LINE):
            prefetch(indices, j)
            prefetch(values, j)


@inner_kernel(types.float64(_longs, _features, floats, types.int64, floats, flag))
def _margin(starts: Longs, indices: Features, values: Vector, row: int, weights: Vector, intercept: bool) -> float:
    """x.w in four sums, since each addition waits for the one before it."""
    first, last = starts[row], starts[row + 1]
    full = first + (last - first) // 4 * 4
    a = b = c = d = 0.0
    if intercept:
        a += weights[len(weights) - 1]
    for j in range(first, full, 4):
        a += weights[indices[j]] * values[j]
        b += weights[indices[j + 1]] * values[j + 1]
        c += weights[indices[j + 2]] * values[j + 2]
        d += weights[indices[j + 3]] * values[j + 3]
    for j in range(full, last):
        a += weights[indices[j]] * values[j]
    return (a + b) + (c + d)


@inner_kernel(scalar(scalar, types.float64, types.int64))
def _slope(label: f32, margin: float, loss: int) -> f32:
    """The derivative of the loss by the margin."""
    if loss == LOGISTIC:
        return f32(-label / (1.0 + np.exp(label * margin)))
    if label * margin >= 1:
        return f32(0)
    return f32(-label) if loss == HINGE else f32(-2.0 * label * (1.0 - label * margin))


@inner_kernel(types.float64(scalar, types.float64, types.int64, types.float64))
def _furthest(label: f32, margin: float, loss: int, length: float) -> float:
    """The longest step against a row's slope that does not lead beyond its own optimum; `length`: its x.x."""
    if length == 0:
        return 0.0
    if loss == LOGISTIC:
        return 4.0 / length
    return float((1.0 - label * margin) / length) if loss == HINGE else 0.5 / length


@kernel(nothing(_longs, _features, floats, _longs, floats, flag, floats_out))
def find_margins(
    starts: Longs, indices: Features, values: Vector, rows: Longs, weights: Vector, intercept: bool, out: Vector
) -> None:
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        out[at] = _margin(starts, indices, values, rows[at], weights, intercept)


@kernel(types.int64(_longs, _features, floats, _longs, _flags_out, _features_out, types.int64))
def add_support(
    starts: Longs,
    indices: Features,
    values: Vector,
    rows: Longs,
    has: npt.NDArray[np.bool_],
    found: Features,
    count: int,
) -> int:
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            if not has[k]:
                has[k] = True
                found[count] = k
                count += 1
    return count


@kernel(nothing(_features, floats, floats_out))
def copy_at(features: Features, weights: Vector, before: Vector) -> None:
    for at in range(len(features)):
        before[features[at]] = weights[features[at]]


@kernel(nothing(_longs, floats, _flags, floats_out, floats_out))
def rebase(places: Places, values: Vector, has: npt.NDArray[np.bool_], before: Vector, weights: Vector) -> None:
    """What has moved since `before` moves on from the new values."""
    for at in range(len(places)):
        k, value = places[at], values[at]
        weights[k] = value + (weights[k] - before[k]) if has[k] else value
        before[k] = value


@inner_kernel(nothing(*rows_in, floats, floats, types.int64, flag, floats_out))
def add_gradient(
    starts: Longs,
    indices: Features,
    values: Vector,
    labels: Vector,
    costs: Vector,
    rows: Longs,
    weights: Vector,
    decays: Vector,
    loss: int,
    intercept: bool,
    sums: Vector,
) -> None:
    """sums <- sums + the gradients of the rows."""
    own, owed = len(decays) > 1, len(costs) > 1
    pulls = own or decays[0] > 0
    last = len(weights) - 1
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        slope = _slope(labels[row], _margin(starts, indices, values, row, weights, intercept), loss)
        if slope == 0 and not pulls:
            continue
        slope *= costs[row if owed else 0]
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            sums[k] += slope * values[j] + decays[k if own else 0] * weights[k]
        if intercept:
            sums[last] += slope + decays[last if own else 0] * weights[last]


@kernel(nothing(*rows_in, scalar, floats_out, floats, types.int64, flag))
def step_singly(
    starts: Longs,
    indices: Features,
    values: Vector,
    labels: Vector,
    costs: Vector,
    rows: Longs,
    lr: f32,
    weights: Vector,
    decays: Vector,
    loss: int,
    intercept: bool,
) -> None:
    """A step for each row."""
    own, owed = len(decays) > 1, len(costs) > 1
    pulls = own or decays[0] > 0
    last = len(weights) - 1
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        slope = _slope(labels[row], _margin(starts, indices, values, row, weights, intercept), loss)
        if slope == 0 and not pulls:
            continue
        slope *= costs[row if owed else 0]
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            weight = weights[k]
            weights[k] = weight - lr * (slope * values[j] + decays[k if own else 0] * weight)
        if intercept:
            weights[last] -= lr * (slope + decays[last if own else 0] * weights[last])


@kernel(nothing(*rows_in, types.int64, scalar, floats_out, floats, types.int64, flag, flag, floats_out))
def step_batches(
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
    loss: int,
    intercept: bool,
    is_mean: bool,
    sums: Vector,
) -> None:
    """A step for each batch. `sums` (one for each weight) is 0 before and after."""
    last = len(weights) - 1
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        add_gradient(starts, indices, values, labels, costs, batch, weights, decays, loss, intercept, sums)
        rate = lr / f32(len(batch)) if is_mean else lr
        for at in range(len(batch)):
            row = batch[at]
            for j in range(starts[row], starts[row + 1]):
                k = indices[j]
                weights[k] -= rate * sums[k]
                sums[k] = 0
        if intercept:
            weights[last] -= rate * sums[last]
            sums[last] = 0


@kernel(nothing(*rows_in, types.float64, floats_out, floats, floats, types.int64, flag))
def step_fitted(
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
    loss: int,
    intercept: bool,
) -> None:
    """A step for each row, weight k at the rate lr rates_k; no step leads beyond the row's own optimum, and the pull
    towards zero is taken after it, implicitly, so that none of both can overshoot."""
    own, owed = len(decays) > 1, len(costs) > 1
    last = len(weights) - 1
    for at in range(len(rows)):
        ask_for(starts, indices, values, rows, at + AHEAD)
        row = rows[at]
        label, margin = labels[row], _margin(starts, indices, values, row, weights, intercept)
        slope = _slope(label, margin, loss)
        move = 0.0
        if slope != 0:
            length = float(rates[last]) if intercept else 0.0
            for j in range(starts[row], starts[row + 1]):
                length += rates[indices[j]] * values[j] * values[j]
            move = slope * min(lr * costs[row if owed else 0], _furthest(label, margin, loss, length))
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            rate = float(rates[k])
            weights[k] = (weights[k] - rate * move * values[j]) / (1.0 + lr * rate * decays[k if own else 0])
        if intercept:
            rate = float(rates[last])
            weights[last] = (weights[last] - rate * move) / (1.0 + lr * rate * decays[last if own else 0])
