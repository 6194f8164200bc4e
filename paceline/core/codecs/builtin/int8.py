"""A byte for each value, and a scale for each block of them."""

from typing import ClassVar

from paceline.core.codecs.codec import BLOCK, Buffer, Bytes, Codec, bytes_in_blocks, bytes_of
from paceline.core.values import Vector


class Int8(Codec):
    """Blocks of 1,024 values, each a float32 scale, max|x| / 127, and round(x / scale), from -127 to 127:
    1.004 bytes a value. Absolute error at most half a scale; blocks below 1.5e-36 become 0."""

    keeps_all: ClassVar[bool] = True
    unit: ClassVar[tuple[int, int]] = (4 + BLOCK, BLOCK)
    biased: ClassVar[bool] = True

    def most_bytes(self, elements: int) -> int:
        return bytes_in_blocks(elements, 8)

    def elements_in(self, data: Buffer) -> int:
        size = len(bytes_of(data))
        blocks = -(-size // (4 + BLOCK))
        if 0 < size - (4 + BLOCK) * (blocks - 1) < 5:
            raise self._broken(f"{size:,} bytes are no blocks of a scale and 1 to 1,024 bytes")
        return size - 4 * blocks

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import codec_loops as loops

        return loops.quantise(values, out)

    def _decode(self, data: Bytes, out: Vector) -> None:
        from paceline.core.codecs import codec_loops as loops

        self._check_scales(data)
        loops.dequantise(data, out)

    def _add(self, data: Bytes, out: Vector, weight: float) -> None:
        from paceline.core.codecs import codec_loops as loops

        self._check_scales(data)
        loops.add_quantised(data, out, weight)

    def _check_scales(self, data: Bytes) -> None:
        from paceline.core.codecs import codec_loops as loops

        scales = loops.scales_of_quantised(data)
        if not ((scales >= 0) & (scales <= loops.LARGEST_SCALE)).all():
            raise self._broken("it has a scale that is negative, too large or no number")
