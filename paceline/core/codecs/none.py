"""No compression: float32 as it lies in memory."""

from typing import ClassVar

import numpy as np

from paceline.core.codec import Buffer, Codec
from paceline.core.values import Vector


class NoCompression(Codec):
    """float32, little endian, 4 bytes for each element; every bit survives."""

    name: ClassVar[str] = "none"
    lossless: ClassVar[bool] = True

    def bytes_for(self, elements: int) -> int:
        return 4 * elements

    def _encode(self, values: Vector, out: Buffer) -> None:
        np.frombuffer(out, dtype=np.uint8)[:] = values.view(np.uint8)

    def _decode(self, data: Buffer, out: Vector) -> None:
        out.view(np.uint8)[:] = np.frombuffer(data, dtype=np.uint8)
