"""The compiled loops of the codecs that round to few bits, or send only some values.

As in `kernels.py`: float32 in the order written, sources may be read-only and unaligned, little endian. Magnitudes are
compared as bit patterns, which have the order of the values; infinities and NaN come out largest."""

from typing import cast

import numpy as np
import numpy.typing as npt
from numba import types

from paceline.core.codecs.codec import BLOCK, bytes_in_blocks
from paceline.core.compiled import floats, floats_out, kernel, nothing, words, words_out
from paceline.core.errors import BadPush
from paceline.core.values import Vector

LARGEST_SCALE = np.nextafter(np.float32(np.finfo(np.float32).max / 127), np.float32(0))
"""127 times this is finite."""
NAN = 0x7FC00000
"""Its bit pattern."""
Words = npt.NDArray[np.uint32]
Bytes = npt.NDArray[np.uint8]

u32, f32, u64 = np.uint32, np.float32, np.uint64

_bytes = types.Array(types.uint8, 1, "C", readonly=True, aligned=False)
_bytes_out = types.Array(types.uint8, 1, "C", aligned=False)
_scales = types.Array(types.float32, 1, "A", readonly=True, aligned=False)
_scales_out = types.Array(types.float32, 1, "A", aligned=False)

_MAGNITUDE = u32(0x7FFFFFFF)
_SIGN = u32(0x80000000)
_INFINITY = u32(0x7F800000)
_NORMAL = f32(2.0**-126)
_SAMPLE = 1 << 14
"""Fewest values that stand for all where a threshold is estimated."""
_FARTHEST = 256
"""So of a large part one value in 257."""
_SURE = 5.0
"""Standard deviations that make a magnitude from a sample safe to be reached by enough."""


# int8: blocks of a scale and up to 1,024 bytes
def quantise(values: Vector, out: Bytes) -> int:
    """Writes for each block its scale, max|x| / 127, and round(x / scale) in a byte each; returns the bytes written. A
    block that is not finite gets the scale NaN, one whose scale would be subnormal becomes 0."""
    size = bytes_in_blocks(len(values), 8)
    _quantise(values.view(u32), values, _scales_in(out[:size], 4 + BLOCK), out)
    return size


def dequantise(data: Bytes, out: Vector) -> None:
    """scale * q for each value."""
    check_bytes(data, bytes_in_blocks(len(out), 8))
    _dequantise(scales_of_quantised(data), data, out)


def add_quantised(data: Bytes, out: Vector, weight: float) -> None:
    """out += weight * what `dequantise` gives."""
    check_bytes(data, bytes_in_blocks(len(out), 8))
    _add_quantised(scales_of_quantised(data) * f32(weight), data, out)


def scales_of_quantised(data: Bytes) -> Vector:
    """All blocks' scales."""
    return _scales_in(data, 4 + BLOCK)


@kernel(nothing(words, floats, _scales_out, _bytes_out))
def _quantise(bits: Words, values: Vector, scales: Vector, out: Bytes) -> None:
    for block in range(len(scales)):  # slices: a sum as an index keeps a loop from being vectorised
        start, at = block * BLOCK, block * (4 + BLOCK) + 4
        part, sizes, codes = values[start : start + BLOCK], bits[start : start + BLOCK], out[at : at + BLOCK]
        top = u32(0)
        for i in range(len(part)):
            top = u32(max(top, u32(sizes[i] & _MAGNITUDE)))
        scale = f32(min(f32(u32(top).view(f32) / f32(127)), LARGEST_SCALE))
        if top >= _INFINITY:
            scale = f32(np.nan)
        inverse = f32(1) / scale
        if not scale >= _NORMAL:
            inverse = f32(0)
            scale = scale if top >= _INFINITY else f32(0)
        scales[block] = scale
        for i in range(len(part)):
            # adding 1.5 * 2^23 lets the float unit round to the nearest integer, ties to even, into the lowest bits
            near = f32(max(f32(-127), min(f32(127), part[i] * inverse)))
            codes[i] = np.uint8(u32(f32(near + f32(12582912)).view(u32) & u32(0xFF)))


@kernel(nothing(_scales, _bytes, floats_out))
def _dequantise(scales: Vector, data: Bytes, out: Vector) -> None:
    for block in range(len(scales)):
        at, scale, part = block * (4 + BLOCK) + 4, scales[block], out[block * BLOCK : (block + 1) * BLOCK]
        codes = data[at : at + BLOCK]
        for i in range(len(part)):
            part[i] = scale * f32(np.int8(codes[i]))


@kernel(nothing(_scales, _bytes, floats_out))
def _add_quantised(scales: Vector, data: Bytes, out: Vector) -> None:
    for block in range(len(scales)):
        at, scale, part = block * (4 + BLOCK) + 4, scales[block], out[block * BLOCK : (block + 1) * BLOCK]
        codes = data[at : at + BLOCK]
        for i in range(len(part)):
            part[i] += scale * f32(np.int8(codes[i]))


# sign: blocks of a scale and up to 128 bytes of 8 signs
def pack_signs(values: Vector, out: Bytes) -> int:
    """Writes for each block its scale, mean |x|, and a bit for each value, 1 where it is negative; returns the bytes
    written. A block that is not finite gets a scale that is not."""
    size = bytes_in_blocks(len(values), 1)
    scales = _scales_in(out[:size], 4 + BLOCK // 8)
    _mean_magnitudes(values.view(u32), scales)
    _pack_signs(values.view(u32), len(scales), out)
    return size


def unpack_signs(data: Bytes, out: Vector) -> None:
    """The block's scale with each value's sign."""
    check_bytes(data, bytes_in_blocks(len(out), 1))
    _unpack_signs(scales_of_signs(data).copy().view(u32), data, out.view(u32))


def add_signs(data: Bytes, out: Vector, weight: float) -> None:
    """out += weight * what `unpack_signs` gives."""
    check_bytes(data, bytes_in_blocks(len(out), 1))
    _add_signs((scales_of_signs(data) * f32(weight)).view(u32), data, out)


def scales_of_signs(data: Bytes) -> Vector:
    """All blocks' scales."""
    return _scales_in(data, 4 + BLOCK // 8)


@kernel(nothing(words, _scales_out))
def _mean_magnitudes(bits: Words, scales: Vector) -> None:
    """Eight sums side by side, each of 1/1,024 of the values so that none overflows."""
    each = f32(1 / BLOCK)
    for block in range(len(scales)):
        start, count = block * BLOCK, min(BLOCK, len(bits) - block * BLOCK)
        a = b = c = d = e = f = g = h = f32(0)
        for i in range(start, start + count - count % 8, 8):
            a += u32(bits[i] & _MAGNITUDE).view(f32) * each
            b += u32(bits[i + 1] & _MAGNITUDE).view(f32) * each
            c += u32(bits[i + 2] & _MAGNITUDE).view(f32) * each
            d += u32(bits[i + 3] & _MAGNITUDE).view(f32) * each
            e += u32(bits[i + 4] & _MAGNITUDE).view(f32) * each
            f += u32(bits[i + 5] & _MAGNITUDE).view(f32) * each
            g += u32(bits[i + 6] & _MAGNITUDE).view(f32) * each
            h += u32(bits[i + 7] & _MAGNITUDE).view(f32) * each
        for i in range(start + count - count % 8, start + count):
            a += u32(bits[i] & _MAGNITUDE).view(f32) * each
        scales[block] = f32(((a + b) + (c + d)) + ((e + f) + (g + h))) * (f32(BLOCK) / f32(count))


@kernel(nothing(words, types.int64, _bytes_out))
def _pack_signs(bits: Words, blocks: int, out: Bytes) -> None:
    for block in range(blocks):
        start, at = block * BLOCK, block * (4 + BLOCK // 8) + 4
        count = min(BLOCK, len(bits) - start)
        for i in range(count // 8):
            byte = u32(0)
            for bit in range(8):
                byte = u32(byte | u32(u32(bits[start + 8 * i + bit] >> u32(31)) << u32(bit)))
            out[at + i] = np.uint8(byte)
        if count % 8:
            byte = u32(0)
            for bit in range(count % 8):
                byte = u32(byte | u32(u32(bits[start + count - count % 8 + bit] >> u32(31)) << u32(bit)))
            out[at + count // 8] = np.uint8(byte)


@kernel(nothing(words, _bytes, words_out))
def _unpack_signs(scales: Words, data: Bytes, out: Words) -> None:
    for block in range(len(scales)):
        start, at, scale = block * BLOCK, block * (4 + BLOCK // 8) + 4, scales[block]
        count = min(BLOCK, len(out) - start)
        for i in range(count // 8):
            byte = u32(data[at + i])
            for bit in range(8):
                out[start + 8 * i + bit] = u32(scale ^ u32(u32(byte << u32(31 - bit)) & _SIGN))
        for bit in range(count % 8):
            byte = u32(data[at + count // 8])
            out[start + count - count % 8 + bit] = u32(scale ^ u32(u32(byte << u32(31 - bit)) & _SIGN))


@kernel(nothing(words, _bytes, floats_out))
def _add_signs(scales: Words, data: Bytes, out: Vector) -> None:
    for block in range(len(scales)):
        start, at, scale = block * BLOCK, block * (4 + BLOCK // 8) + 4, scales[block]
        count = min(BLOCK, len(out) - start)
        for i in range(count // 8):
            byte = u32(data[at + i])
            for bit in range(8):
                out[start + 8 * i + bit] += u32(scale ^ u32(u32(byte << u32(31 - bit)) & _SIGN)).view(f32)
        for bit in range(count % 8):
            byte = u32(data[at + count // 8])
            out[start + count - count % 8 + bit] += u32(scale ^ u32(u32(byte << u32(31 - bit)) & _SIGN)).view(f32)


def check_bytes(data: Bytes, expected: int) -> None:
    """BadPush where a part is longer or shorter: compiled loops would read past its end."""
    if len(data) != expected:
        raise BadPush(f"A part has {len(data):,} bytes; expected {expected:,}.")


def _scales_in(data: Bytes, each: int) -> Vector:
    """The scales at the front of blocks of `each` bytes, where they lie."""
    return np.ndarray((-(-len(data) // each),), np.float32, data, strides=(each,))


# which values are sent
def largest(values: Vector, count: int) -> tuple[Words, Vector]:
    """Places, rising, and values of the `count` largest magnitudes, the first ones of equals; zeros are never among them."""
    places, found = reaching(values, sampled_magnitude(values, count / max(len(values), 1), _SURE))
    if len(places) < count:  # the sample has misled, or most are 0
        places, found = reaching(values, 0)
    if len(places) <= count:
        return places, found
    sizes = found.view(u32) & _MAGNITUDE
    threshold = np.partition(sizes, len(sizes) - count)[len(sizes) - count]
    keep = sizes > threshold
    equal = np.flatnonzero(sizes == threshold)
    keep[equal[: count - np.count_nonzero(keep)]] = True
    return cast(Words, places[keep]), found[keep]


def reaching(values: Vector, least: int) -> tuple[Words, Vector]:
    """Places, rising, and values of all but 0 whose magnitude has at least this bit pattern."""
    places, found = np.empty((2, len(values) + 1), u32)  # of which only what is written takes memory
    count = _collect(values.view(u32), u32(max(least, 1)), places, found)
    return places[:count], found[:count].view(f32)


def bits_of(magnitude: float) -> int:
    """The bit pattern of a float32 magnitude."""
    return int(np.float32(magnitude).view(u32) & _MAGNITUDE)


def sampled_magnitude(values: Vector, share: float, deviations: float = 0.0) -> int:
    """Bit pattern of the magnitude that about this share of the values reaches, estimated from values at an odd distance from
    each other; exact for fewer than 32,768. `deviations`: lets more values reach it, by this number of the sample's standard
    deviations."""
    if not len(values):
        return 0
    distance = min(len(values) // (2 * _SAMPLE) * 2, _FARTHEST) + 1
    sizes = values.view(u32)[::distance] & _MAGNITUDE
    found = share * len(sizes) + (deviations * np.sqrt(share * len(sizes)) if distance > 1 else 0)
    rank = len(sizes) - min(len(sizes), int(np.ceil(found)))
    return int(np.partition(sizes, rank)[rank])


@kernel(types.int64(words, types.uint32, words_out, words_out))
def _collect(bits: Words, least: np.uint32, places: Words, found: Words) -> int:
    """Looks closer only at groups of 16 that hold one, and there without a branch: what is not taken is written over by the
    next. `places` and `found` have room for one more than there are values."""
    count, full = 0, len(bits) - len(bits) % 16
    for start in range(0, full, 16):
        top = u32(0)
        for i in range(16):
            top = u32(max(top, u32(bits[start + i] & _MAGNITUDE)))
        if top >= least:
            for i in range(start, start + 16):
                places[count], found[count] = u32(i), bits[i]
                count += int(u32(bits[i] & _MAGNITUDE) >= least)
    for i in range(full, len(bits)):
        places[count], found[count] = u32(i), bits[i]
        count += int(u32(bits[i] & _MAGNITUDE) >= least)
    return count


# how places travel: 7 bits in a byte, the highest bit says that more follow
def write_varints(codes: Words, out: Bytes) -> int:
    """Writes numbers below 2^28 in 1 to 4 bytes each, and returns the bytes written."""
    return _write_varints(codes, out)


def read_varints(data: Bytes, codes: Words) -> bool:
    """Reads varints into `codes`. True if the bytes held exactly as many as `codes` has room for."""
    return bool(_read_varints(data, codes))


@kernel(types.int64(words, _bytes_out))
def _write_varints(codes: Words, out: Bytes) -> int:
    at = 0
    for i in range(len(codes)):
        code = codes[i]
        while code >= u32(128):
            out[at] = np.uint8(u32(code & u32(127)) | u32(128))
            code = u32(code >> u32(7))
            at += 1
        out[at] = np.uint8(code)
        at += 1
    return at


@kernel(types.boolean(_bytes, words_out))
def _read_varints(data: Bytes, codes: Words) -> bool:
    at = 0
    for i in range(len(codes)):
        code, bits = u32(0), 0
        more = True
        while more:
            if at == len(data) or bits == 28:
                return False
            code = u32(code | u32(u32(data[at] & np.uint8(127)) << u32(bits)))
            more = data[at] >= 128
            bits += 7
            at += 1
        codes[i] = code
    return bool(at == len(data))


# places that a seed gives
def random_places(seed: int, elements: int, count: int) -> Words:
    """`count` places, rising, one in each of as many equal stretches: where, says a hash of the seed."""
    places = np.empty(count, u32)
    _random_places(u64(seed), elements, places)
    return places


def seed_of(values: Vector) -> int:
    """A number that changes with the values' bits."""
    return int(_seed_of(values.view(u32)))


@kernel(nothing(types.uint64, types.int64, words_out))
def _random_places(seed: np.uint64, elements: int, places: Words) -> None:
    start = 0
    for i in range(len(places)):
        stop = (i + 1) * elements // len(places)
        x = u64(seed + u64(i + 1) * u64(0x9E3779B97F4A7C15))  # splitmix64
        x = u64(u64(x ^ u64(x >> u64(30))) * u64(0xBF58476D1CE4E5B9))
        x = u64(u64(x ^ u64(x >> u64(27))) * u64(0x94D049BB133111EB))
        x = u64(x ^ u64(x >> u64(31)))
        places[i] = u32(u64(start) + u64(x % u64(stop - start)))
        start = stop


@kernel(types.uint64(words))
def _seed_of(bits: Words) -> np.uint64:
    total = u64(len(bits))
    for start in range(0, len(bits), BLOCK):
        block = u32(0)
        for i in range(start, min(start + BLOCK, len(bits))):
            block = u32(block + u32(bits[i] * u32(u32(i - start) * u32(0x9E3779B9) | u32(1))))
        total = u64(u64(total ^ u64(block)) * u64(0x100000001B3))
    return total
