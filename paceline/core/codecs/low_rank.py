"""The compiled loops of PowerSGD: a matrix as the product of two thin ones, and back.

`left` (rank, rows) and `right` (rank, columns) stand for the matrix sum_k left_k right_k', which is flat here, row by row. As
in `kernels.py`: float32 on one thread; what is decoded in the order written, so that it has the same bits everywhere."""

import numpy as np
from numba import types

from paceline.core.codecs.codec_loops import seed_of
from paceline.core.compiled import floats, floats_out, kernel, nothing, scalar
from paceline.core.errors import BadPush
from paceline.core.values import Vector

Factor = np.ndarray[tuple[int, int], np.dtype[np.float32]]
"""(rank, rows) or (rank, columns)."""

_BLOCK = 2048
"""Columns that are worked on at a time: those of a row and of four factors fit a core's first cache."""
_ITERATIONS = 2
"""How often both factors are computed again. For a matrix with singular values 1/k, rank 4 then leaves 1.06 times the least
possible error; 1.44 times after one, 1.02 after three."""
_NOISE = 1e-12
"""Squared length, to what it was, of what is only rounding."""

f32 = np.float32
f64 = np.float64

_factor = types.Array(types.float32, 2, "C", readonly=True, aligned=False)
_factor_out = types.Array(types.float32, 2, "C", aligned=False)


def factorise(matrix: Vector, left: Factor, right: Factor) -> None:
    """Writes the factors of a matrix, close to its best approximation of their rank, which is at most the rows and at most
    the columns: subspace iteration from random columns, whose seed is a hash of the matrix. Exact for a matrix of that rank;
    NaN everywhere where it is not finite."""
    _check(matrix, left, right)
    right[:] = np.random.default_rng(seed_of(matrix)).standard_normal(right.shape, f32)
    for turn in range(_ITERATIONS):
        if turn:
            _orthonormalise(right)
        _times(matrix, right, left)
        if not np.isfinite(left).all():
            left[:] = right[:] = np.nan
            return
        _orthonormalise(left)
        _times_transposed(matrix, left, right)


def multiply(left: Factor, right: Factor, out: Vector) -> None:
    """out <- the matrix that the factors stand for."""
    _check(out, left, right)
    _product(left, right, out, f32(1), False)


def add_product(left: Factor, right: Factor, out: Vector, weight: float) -> None:
    """out += weight * what `multiply` gives."""
    _check(out, left, right)
    _product(left, right, out, f32(weight), True)


def _check(matrix: Vector, left: Factor, right: Factor) -> None:
    """BadPush where they don't belong together: compiled loops would read past an end."""
    (rank, rows), (other, columns) = left.shape, right.shape
    if rank != other or len(matrix) != rows * columns:
        raise BadPush(
            f"Factors of {rank} x {rows:,} and {other} x {columns:,} values don't give a matrix of "
            f"{len(matrix):,}; pass equal ranks and rows x columns values."
        )


@kernel(nothing(_factor_out), reorders=True)
def _orthonormalise(factor: Factor) -> None:
    """Columns of length 1 at right angles that span all that they did, by Gram and Schmidt, twice because once leaves them
    askew; 0 where one is no more than a sum of those before."""
    for k in range(len(factor)):
        one, before, after = factor[k], 0.0, 0.0
        for j in range(len(one)):
            before += f64(one[j]) * f64(one[j])
        for other in range(2 * k):
            done, share = factor[other % k], 0.0
            for j in range(len(one)):
                share += f64(done[j]) * f64(one[j])
            for j in range(len(one)):
                one[j] -= f32(share) * done[j]
        for j in range(len(one)):
            after += f64(one[j]) * f64(one[j])
        length = np.sqrt(after)
        for j in range(len(one)):
            one[j] = f32(one[j] / length) if after > _NOISE * before else f32(0)


@kernel(nothing(floats, _factor, _factor_out), reorders=True)
def _times(matrix: Vector, right: Factor, left: Factor) -> None:
    """left_k <- matrix right_k."""
    (rank, rows), columns = left.shape, right.shape[1]
    left[:] = f32(0)
    for start in range(0, columns, _BLOCK):
        count = min(_BLOCK, columns - start)
        for i in range(rows):
            row = matrix[i * columns + start : i * columns + start + count]
            for k in range(rank):
                other, total = right[k, start : start + count], f32(0)
                for j in range(count):
                    total += row[j] * other[j]
                left[k, i] += total


@kernel(nothing(floats, _factor, _factor_out))
def _times_transposed(matrix: Vector, left: Factor, right: Factor) -> None:
    """right_k <- matrix' left_k."""
    (rank, rows), columns = left.shape, right.shape[1]
    right[:] = f32(0)
    for start in range(0, columns, _BLOCK):
        count = min(_BLOCK, columns - start)
        for i in range(rows):
            row = matrix[i * columns + start : i * columns + start + count]
            for k in range(rank):
                total, factor = right[k, start : start + count], left[k, i]
                for j in range(count):
                    total[j] += factor * row[j]


@kernel(nothing(_factor, _factor, floats_out, scalar, types.boolean))
def _product(left: Factor, right: Factor, out: Vector, weight: f32, is_sum: bool) -> None:
    (rank, rows), columns = left.shape, right.shape[1]
    row = np.empty(_BLOCK, f32)
    for start in range(0, columns, _BLOCK):
        count = min(_BLOCK, columns - start)
        for i in range(rows):
            row[:count] = f32(0)
            for k in range(rank):
                other, factor = right[k, start : start + count], left[k, i]
                for j in range(count):
                    row[j] += factor * other[j]
            target = out[i * columns + start : i * columns + start + count]
            if is_sum:
                for j in range(count):
                    target[j] += weight * row[j]
            else:
                for j in range(count):
                    target[j] = row[j]
