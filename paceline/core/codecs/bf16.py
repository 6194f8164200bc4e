"""bfloat16: half the bytes, the range of float32, 8 significant bits."""

from typing import ClassVar

import numpy as np

from paceline.core.codec import Buffer, Codec
from paceline.core.values import Vector


class Bf16(Codec):
    """Rounded to nearest even: relative error at most 2^-8 at any size but float32's subnormals and its last 0.4 %."""

    name: ClassVar[str] = "bf16"

    def bytes_for(self, elements: int) -> int:
        return 2 * elements

    def _encode(self, values: Vector, out: Buffer) -> None:
        from paceline.core import kernels

        kernels.encode_bf16(values, np.frombuffer(out, dtype=np.uint16))

    def _decode(self, data: Buffer, out: Vector) -> None:
        from paceline.core import kernels

        kernels.decode_bf16(np.frombuffer(data, dtype=np.uint16), out)
