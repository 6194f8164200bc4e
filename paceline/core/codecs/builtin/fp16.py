"""IEEE half precision: half the bytes, 11 significant bits."""

from typing import ClassVar

import numpy as np

from paceline.core.codecs.codec import Buffer, Bytes, Codec
from paceline.core.values import Vector


class Fp16(Codec):
    """Rounded to nearest even: relative error at most 2^-11 from 6.1e-5 on, absolute at most 2^-25 below. 65,520 and
    more become infinite, and such a push is refused as not finite: use bf16 where gradients are that large."""

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

        kernels.encode_fp16(values, out[: 2 * len(values)].view(np.uint16))
        return 2 * len(values)

    def _decode(self, data: Bytes, out: Vector) -> None:
        from paceline.core import kernels

        kernels.decode_fp16(data.view(np.uint16), out)
