"""The loops of the optimizers, fused and compiled; what they compute is in `optimizers/`, in the same words.

`out` may be `weights`, and must not overlap it otherwise; `g` is gradient * scale. All arithmetic is float32 in the order
written, without fastmath and without fused multiply-add, so that a step has the same bits on a whole vector, on any split
of it, in place or not; numpy's error model is what lets loops with a division use the vector unit."""

import numpy as np

from paceline.core.compiled import check_lengths, floats, floats_out, kernel, nothing, scalar
from paceline.core.values import Vector

f32 = np.float32


def _begin(weights: Vector, out: Vector, *others: Vector) -> None:
    """Makes every step one in place: a copy and then the loop is faster than a loop that writes one more stream."""
    check_lengths(weights, out, *others)
    if out is not weights:
        np.copyto(out, weights)


# sgd
def sgd(
    weights: Vector,
    out: Vector,
    gradient: Vector,
    slot: Vector,
    scale: float,
    lr: float,
    momentum: float,
    decay: float,
    nesterov: bool,
) -> None:
    """slot <- momentum * slot + (g + decay * w); w <- w - lr * slot, or with `nesterov`
    w <- w - lr * (g + decay * w + momentum * slot)."""
    _begin(weights, out, gradient, slot)
    loop = _sgd_nesterov if nesterov else _sgd
    loop(out, gradient, slot, f32(scale), f32(lr), f32(momentum), f32(decay))


def sgd_without_momentum(weights: Vector, out: Vector, gradient: Vector, scale: float, lr: float, decay: float) -> None:
    """As `sgd` with momentum 0, which keeps no slot: w <- w - lr * (g + decay * w)."""
    _begin(weights, out, gradient)
    _sgd_without_momentum(out, gradient, f32(scale), f32(lr), f32(decay))


@kernel(nothing(floats_out, floats, floats_out, scalar, scalar, scalar, scalar))
def _sgd(weights: Vector, gradient: Vector, slot: Vector, scale: f32, lr: f32, momentum: f32, decay: f32) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        moved = momentum * slot[i] + (gradient[i] * scale + decay * weight)
        slot[i] = moved
        weights[i] = weight - lr * moved


@kernel(nothing(floats_out, floats, floats_out, scalar, scalar, scalar, scalar))
def _sgd_nesterov(
    weights: Vector, gradient: Vector, slot: Vector, scale: f32, lr: f32, momentum: f32, decay: f32
) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        slope = gradient[i] * scale + decay * weight
        moved = momentum * slot[i] + slope
        slot[i] = moved
        weights[i] = weight - lr * (slope + momentum * moved)


@kernel(nothing(floats_out, floats, scalar, scalar, scalar))
def _sgd_without_momentum(weights: Vector, gradient: Vector, scale: f32, lr: f32, decay: f32) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        weights[i] = weight - lr * (gradient[i] * scale + decay * weight)


# steps that divide by what the gradients have been
def adagrad(
    weights: Vector, out: Vector, gradient: Vector, total: Vector, scale: float, lr: float, eps: float, decay: float
) -> None:
    """g <- g + decay * w; total <- total + g^2; w <- w - lr * g / (sqrt(total) + eps)."""
    _begin(weights, out, gradient, total)
    _adagrad(out, gradient, total, f32(scale), f32(lr), f32(eps), f32(decay))


def rmsprop(
    weights: Vector,
    out: Vector,
    gradient: Vector,
    square: Vector,
    scale: float,
    lr: float,
    alpha: float,
    eps: float,
    decay: float,
) -> None:
    """g <- g + decay * w; square <- alpha * square + (1 - alpha) * g^2; w <- w - lr * g / (sqrt(square) + eps)."""
    _begin(weights, out, gradient, square)
    _rmsprop(out, gradient, square, f32(scale), f32(lr), f32(alpha), f32(1 - alpha), f32(eps), f32(decay))


def rmsprop_with_momentum(
    weights: Vector,
    out: Vector,
    gradient: Vector,
    square: Vector,
    slot: Vector,
    scale: float,
    lr: float,
    alpha: float,
    eps: float,
    decay: float,
    momentum: float,
) -> None:
    """As `rmsprop`, but slot <- momentum * slot + g / (sqrt(square) + eps); w <- w - lr * slot."""
    _begin(weights, out, gradient, square, slot)
    rates = (f32(scale), f32(lr), f32(alpha), f32(1 - alpha), f32(eps), f32(decay), f32(momentum))
    _rmsprop_with_momentum(out, gradient, square, slot, *rates)


def adam(
    weights: Vector,
    out: Vector,
    gradient: Vector,
    mean: Vector,
    square: Vector,
    scale: float,
    lr: float,
    betas: tuple[float, float],
    eps: float,
    steps: int,
    decay: float,
    shrink: float,
) -> None:
    """g <- g + decay * w; mean <- b1 * mean + (1 - b1) * g; square <- b2 * square + (1 - b2) * g^2;
    w <- shrink * w - lr / (1 - b1^steps) * mean / (sqrt(square) / sqrt(1 - b2^steps) + eps), `steps` counted from 1."""
    _begin(weights, out, gradient, mean, square)
    first, second = betas
    rate, root = lr / (1 - first**steps), (1 - second**steps) ** -0.5
    shares = (f32(first), f32(1 - first), f32(second), f32(1 - second))
    _adam(out, gradient, mean, square, f32(scale), f32(rate), *shares, f32(root), f32(eps), f32(decay), f32(shrink))


# what a worker makes of its gradient, in its place
def adam_ahead(
    gradient: Vector,
    weights: Vector,
    mean: Vector,
    square: Vector,
    betas: tuple[float, float],
    eps: float,
    pushes: int,
    decay: float,
) -> None:
    """g <- g + decay * w; mean and square as in `adam`; m^ = mean / (1 - b1^pushes);
    g <- (b1 * m^ + (1 - b1) * g) / (sqrt(square) / sqrt(1 - b2^pushes) + eps), `pushes` counted from 1."""
    check_lengths(gradient, weights, mean, square)
    first, second = betas
    ahead, root = first / (1 - first**pushes), (1 - second**pushes) ** -0.5
    shares = (f32(first), f32(1 - first), f32(second), f32(1 - second))
    _adam_ahead(gradient, weights, mean, square, *shares, f32(ahead), f32(root), f32(eps), f32(decay))


def rmsprop_ahead(gradient: Vector, weights: Vector, square: Vector, alpha: float, eps: float, decay: float) -> None:
    """g <- g + decay * w; square as in `rmsprop`; g <- g / (sqrt(square) + eps)."""
    check_lengths(gradient, weights, square)
    _divide(gradient, weights, square, f32(alpha), f32(1 - alpha), f32(eps), f32(decay))


def adagrad_ahead(gradient: Vector, weights: Vector, total: Vector, eps: float, decay: float) -> None:
    """g <- g + decay * w; total as in `adagrad`; g <- g / (sqrt(total) + eps)."""
    check_lengths(gradient, weights, total)
    _divide(gradient, weights, total, f32(1), f32(1), f32(eps), f32(decay))


@kernel(nothing(floats_out, floats, floats_out, floats_out, *[scalar] * 8))
def _adam_ahead(
    gradient: Vector,
    weights: Vector,
    mean: Vector,
    square: Vector,
    first: f32,
    first_rest: f32,
    second: f32,
    second_rest: f32,
    ahead: f32,
    root: f32,
    eps: f32,
    decay: f32,
) -> None:
    for i in range(len(gradient)):
        slope = gradient[i] + decay * weights[i]
        moved = first * mean[i] + first_rest * slope
        squared = second * square[i] + second_rest * (slope * slope)
        mean[i] = moved
        square[i] = squared
        gradient[i] = (ahead * moved + first_rest * slope) / (np.sqrt(squared) * root + eps)


@kernel(nothing(floats_out, floats, floats_out, *[scalar] * 4))
def _divide(gradient: Vector, weights: Vector, square: Vector, share: f32, rest: f32, eps: f32, decay: f32) -> None:
    for i in range(len(gradient)):
        slope = gradient[i] + decay * weights[i]
        summed = share * square[i] + rest * (slope * slope)
        square[i] = summed
        gradient[i] = slope / (np.sqrt(summed) + eps)


@kernel(nothing(floats_out, floats, floats_out, scalar, scalar, scalar, scalar))
def _adagrad(weights: Vector, gradient: Vector, total: Vector, scale: f32, lr: f32, eps: f32, decay: f32) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        slope = gradient[i] * scale + decay * weight
        summed = total[i] + slope * slope
        total[i] = summed
        weights[i] = weight - lr * (slope / (np.sqrt(summed) + eps))


@kernel(nothing(floats_out, floats, floats_out, scalar, scalar, scalar, scalar, scalar, scalar))
def _rmsprop(
    weights: Vector,
    gradient: Vector,
    square: Vector,
    scale: f32,
    lr: f32,
    alpha: f32,
    rest: f32,
    eps: f32,
    decay: f32,
) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        slope = gradient[i] * scale + decay * weight
        mean = alpha * square[i] + rest * (slope * slope)
        square[i] = mean
        weights[i] = weight - lr * (slope / (np.sqrt(mean) + eps))


@kernel(nothing(floats_out, floats, floats_out, floats_out, scalar, scalar, scalar, scalar, scalar, scalar, scalar))
def _rmsprop_with_momentum(
    weights: Vector,
    gradient: Vector,
    square: Vector,
    slot: Vector,
    scale: f32,
    lr: f32,
    alpha: f32,
    rest: f32,
    eps: f32,
    decay: f32,
    momentum: f32,
) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        slope = gradient[i] * scale + decay * weight
        mean = alpha * square[i] + rest * (slope * slope)
        square[i] = mean
        moved = momentum * slot[i] + slope / (np.sqrt(mean) + eps)
        slot[i] = moved
        weights[i] = weight - lr * moved


@kernel(nothing(floats_out, floats, floats_out, floats_out, *[scalar] * 10))
def _adam(
    weights: Vector,
    gradient: Vector,
    mean: Vector,
    square: Vector,
    scale: f32,
    rate: f32,
    first: f32,
    first_rest: f32,
    second: f32,
    second_rest: f32,
    root: f32,
    eps: f32,
    decay: f32,
    shrink: f32,
) -> None:
    for i in range(len(weights)):
        weight = weights[i]
        slope = gradient[i] * scale + decay * weight
        moved = first * mean[i] + first_rest * slope
        squared = second * square[i] + second_rest * (slope * slope)
        mean[i] = moved
        square[i] = squared
        weights[i] = shrink * weight - rate * (moved / (np.sqrt(squared) * root + eps))
