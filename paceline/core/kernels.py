"""The loops over sums, screening and half precision, fused and compiled; an optimizer's are in `steps/optimizer_loops.py`.

All arithmetic is float32 in the order written, without fastmath and without fused multiply-add, so a loop gives the
same bits on a whole vector, on any split of it, in place or not. Sources may be read-only and unaligned (bytes straight
from the network). Little endian."""

import numpy as np
import numpy.typing as npt
from numba import types

from paceline.core.compiled import check_lengths, floats, floats_out, kernel, nothing, scalar, words, words_out
from paceline.core.errors import BadPush
from paceline.core.values import Vector

Bits = npt.NDArray[np.uint32]
"""float32 values seen as their bit patterns."""
Halves = npt.NDArray[np.uint16]
"""fp16 or bf16 values seen as their bit patterns."""

u32 = np.uint32
f32 = np.float32

_halves = types.Array(types.uint16, 1, "C", readonly=True, aligned=False)
_halves_out = types.Array(types.uint16, 1, "C", aligned=False)

_MAGNITUDE = u32(0x7FFFFFFF)
_INFINITY = u32(0x7F800000)
_FP16_INFINITY = u32(0x7C00)
_FP16_OVERFLOW = u32(143 << 23)
"""2^16: everything from here on is infinite in fp16 (what rounds up to it carries into the exponent by itself)."""
_FP16_NORMAL = u32(113 << 23)
"""2^-14, the smallest normal fp16 value."""
_REBIAS = u32(112 << 23)
"""Difference of the exponent biases of float32 and fp16, in float32's place."""
_BLOCK = 4096
"""Elements (16 KB) between the four places that `all_finite` reads at once."""


def _bits_of(values: Vector) -> Bits:
    """The values' bit patterns, without a copy; anything but float32 would silently be read as something else."""
    if values.dtype != f32:
        raise BadPush(f"Values of type {values.dtype} can't be coded or screened; convert them to float32 first.")
    return values.view(u32)


# sums, mixing, screening
def scale_into(out: Vector, values: Vector, weight: float) -> None:
    """Begins a weighted sum: out <- values * weight."""
    check_lengths(out, values)
    _scale_into(out, values, f32(weight))


def add_scaled(total: Vector, values: Vector, weight: float) -> None:
    """Continues a weighted sum: total <- total + values * weight."""
    check_lengths(total, values)
    _add_scaled(total, values, f32(weight))


def mix(local: Vector, pulled: Vector, alpha: float) -> None:
    """A worker's mixing: local <- local + alpha * (pulled - local); alpha 1 copies, alpha 0 changes nothing."""
    check_lengths(local, pulled)
    if alpha == 1:
        np.copyto(local, pulled)
    elif alpha != 0:
        _mix(local, pulled, f32(alpha))


def plain_step(local: Vector, gradient: Vector, lr: float) -> None:
    """A worker's own step: local <- local - lr * gradient."""
    check_lengths(local, gradient)
    _plain_step(local, gradient, f32(lr))


def look_ahead(gradient: Vector, velocity: Vector, weights: Vector, momentum: float, decay: float) -> None:
    """A worker's own momentum, in place: velocity <- momentum * velocity + g, gradient <- g + momentum * velocity, where g is
    gradient + decay * weights."""
    check_lengths(gradient, velocity, weights)
    _look_ahead(gradient, velocity, weights, f32(momentum), f32(decay))


def all_finite(values: Vector) -> bool:
    """Whether no value is infinite or NaN; stops soon after the first one that is."""
    return bool(_all_finite(_bits_of(values)))


@kernel(nothing(floats_out, floats, scalar))
def _scale_into(out: Vector, values: Vector, weight: f32) -> None:
    for i in range(len(out)):
        out[i] = values[i] * weight


@kernel(nothing(floats_out, floats, scalar))
def _add_scaled(total: Vector, values: Vector, weight: f32) -> None:
    for i in range(len(total)):
        total[i] += values[i] * weight


@kernel(nothing(floats_out, floats_out, floats, scalar, scalar))
def _look_ahead(gradient: Vector, velocity: Vector, weights: Vector, momentum: f32, decay: f32) -> None:
    for i in range(len(gradient)):
        now = gradient[i] + decay * weights[i]
        moved = momentum * velocity[i] + now
        velocity[i] = moved
        gradient[i] = now + momentum * moved


@kernel(nothing(floats_out, floats, scalar))
def _mix(local: Vector, pulled: Vector, alpha: f32) -> None:
    for i in range(len(local)):
        local[i] += alpha * (pulled[i] - local[i])


@kernel(nothing(floats_out, floats, scalar))
def _plain_step(local: Vector, gradient: Vector, lr: f32) -> None:
    for i in range(len(local)):
        local[i] -= lr * gradient[i]


@kernel(types.boolean(words))
def _all_finite(bits: Bits) -> bool:
    """Looks for an exponent of all ones. One core reads twice as fast from four places at once as from one."""
    full = len(bits) - len(bits) % (4 * _BLOCK)
    for start in range(0, full, 4 * _BLOCK):
        top = u32(0)
        for i in range(start, start + _BLOCK):
            low = u32(max(u32(bits[i] & _INFINITY), u32(bits[i + _BLOCK] & _INFINITY)))
            high = u32(max(u32(bits[i + 2 * _BLOCK] & _INFINITY), u32(bits[i + 3 * _BLOCK] & _INFINITY)))
            top = u32(max(top, u32(max(low, high))))
        if top == _INFINITY:
            return False
    top = u32(0)
    for i in range(full, len(bits)):
        top = u32(max(top, u32(bits[i] & _INFINITY)))
    return bool(top != _INFINITY)


# half precision. numba widens uint32 arithmetic to 64 bits, which halves the speed: hence a u32() around every step.
def encode_bf16(values: Vector, out: Halves) -> None:
    """Rounds to bf16, ties to even; values too large become infinite; NaN stays a quiet NaN with its sign."""
    check_lengths(values, out)
    _encode_bf16(_bits_of(values), out)


def decode_bf16(halves: Halves, out: Vector) -> None:
    """Exact: bf16 is the upper half of a float32."""
    check_lengths(halves, out)
    _decode_bf16(halves, _bits_of(out))


def encode_fp16(values: Vector, out: Halves) -> None:
    """Rounds to fp16, ties to even, with numpy's bits in every case: 65,520 and more become infinite, small values
    subnormal, NaN stays NaN."""
    check_lengths(values, out)
    _encode_fp16(_bits_of(values), out)


def decode_fp16(halves: Halves, out: Vector) -> None:
    """Exact, also for subnormals."""
    check_lengths(halves, out)
    _decode_fp16(halves, _bits_of(out))


@kernel(nothing(words, _halves_out))
def _encode_bf16(bits: Bits, out: Halves) -> None:
    for i in range(len(out)):
        x = bits[i]
        upper = u32(x >> u32(16))
        rounded = u32(u32(u32(x + u32(0x7FFF)) + u32(upper & u32(1))) >> u32(16))
        out[i] = np.uint16(u32(upper | u32(0x40)) if u32(x & _MAGNITUDE) > _INFINITY else rounded)


@kernel(nothing(_halves, words_out))
def _decode_bf16(halves: Halves, out: Bits) -> None:
    for i in range(len(out)):
        out[i] = u32(u32(halves[i]) << u32(16))


@kernel(nothing(words, _halves_out))
def _encode_fp16(bits: Bits, out: Halves) -> None:
    for i in range(len(out)):
        x = bits[i]
        size = u32(x & _MAGNITUDE)
        odd = u32(u32(size >> u32(13)) & u32(1))
        normal = u32(u32(u32(size - u32(_REBIAS - u32(0xFFF))) + odd) >> u32(13))
        # adding 0.5 lets the float unit shift and round a small value to a multiple of 2^-24, fp16's smallest step
        small = u32(f32(size.view(f32) + f32(0.5)).view(u32) - u32(0x3F000000))
        nan = u32(_FP16_INFINITY | max(u32(u32(size >> u32(13)) & u32(0x3FF)), u32(1)))
        large = nan if size > _INFINITY else _FP16_INFINITY
        finite = small if size < _FP16_NORMAL else normal
        half = large if size >= _FP16_OVERFLOW else finite
        out[i] = np.uint16(u32(half | u32(u32(x >> u32(16)) & u32(0x8000))))


@kernel(nothing(_halves, words_out))
def _decode_fp16(halves: Halves, out: Bits) -> None:
    for i in range(len(out)):
        x = u32(halves[i])
        size = u32(u32(x & u32(0x7FFF)) << u32(13))
        normal = u32(size + _REBIAS)
        # 2^-14 with the mantissa, less 2^-14. Multiplying by 2^112 is exact as well, but a processor takes 12 times as
        # long over a float32 subnormal, and gives 0 where a library has told it to flush them.
        small = u32(f32(u32(size | _FP16_NORMAL).view(f32) - f32(2.0**-14)).view(u32))
        finite = small if size < u32(0x400 << 13) else normal
        whole = u32(size | _INFINITY) if size >= u32(_FP16_INFINITY << u32(13)) else finite
        out[i] = u32(whole | u32(u32(x & u32(0x8000)) << u32(16)))
