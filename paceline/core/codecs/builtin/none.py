"""No compression: float32 as it lies in memory."""

from typing import ClassVar

import numpy as np

from paceline.core.codecs.codec import Buffer, Bytes, Codec
from paceline.core.values import Vector


class NoCompression(Codec):
    """float32, little endian, 4 bytes for each element; every bit survives."""

    lossless: ClassVar[bool] = True
    unit: ClassVar[tuple[int, int]] = (4, 1)
    keeps_all: ClassVar[bool] = True
    keeps_rounded: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    def most_bytes(self, elements: int) -> int:
        return 4 * elements

    def elements_in(self, data: Buffer) -> int:
        return self._whole(data, 4)

    def _encode(self, values: Vector, out: Bytes) -> int:
        out[: 4 * len(values)] = values.view(np.uint8)
        return 4 * len(values)

    def _decode(self, data: Bytes, out: Vector) -> None:
        out.view(np.uint8)[:] = data
