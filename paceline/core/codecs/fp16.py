"""IEEE half precision: half the bytes, 11 significant bits."""

from typing import ClassVar

import numpy as np

from paceline.core.codec import Buffer, Codec
from paceline.core.values import Vector


class Fp16(Codec):
    """Rounded to nearest even: relative error at most 2^-11 from 6.1e-5 on, absolute at most 2^-25 below. 65,520 and
    more become infinite, and such a push is refused as not finite: use bf16 where gradients are that large."""

    name: ClassVar[str] = "fp16"

    def bytes_for(self, elements: int) -> int:
        return 2 * elements

    def _encode(self, values: Vector, out: Buffer) -> None:
        from paceline.core import kernels

        kernels.encode_fp16(values, np.frombuffer(out, dtype=np.uint16))

    def _decode(self, data: Buffer, out: Vector) -> None:
        from paceline.core import kernels

        kernels.decode_fp16(np.frombuffer(data, dtype=np.uint16), out)
