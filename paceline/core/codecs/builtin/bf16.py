"""bfloat16: half the bytes, the range of float32, 8 significant bits."""

from typing import ClassVar

import numpy as np

from paceline.core.codecs.codec import Buffer, Bytes, Codec
from paceline.core.values import Vector


class Bf16(Codec):
    """Rounded to nearest even: relative error at most 2^-8 at any size but float32's subnormals and its last 0.4 %."""

    keeps_all: ClassVar[bool] = True
    unit: ClassVar[tuple[int, int]] = (2, 1)
    keeps_rounded: ClassVar[bool] = True
    biased: ClassVar[bool] = False

    def most_bytes(self, elements: int) -> int:
        return 2 * elements

    def elements_in(self, data: Buffer) -> int:
        return self._whole(data, 2)

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core import kernels

        kernels.encode_bf16(values, out[: 2 * len(values)].view(np.uint16))
        return 2 * len(values)

    def _decode(self, data: Bytes, out: Vector) -> None:
        from paceline.core import kernels

        kernels.decode_bf16(data.view(np.uint16), out)
