"""A bit for each value, and the mean size of each block of them."""

from typing import ClassVar

import numpy as np

from paceline.core.codecs.codec import Buffer, Bytes, Codec, bytes_in_blocks, bytes_of, numbers_at
from paceline.core.values import Vector


class Sign(Codec):
    """[Seide et al. 2014; Karimireddy et al. 2019]: the number of elements (uint32), then blocks of 1,024 values, each a
    float32 scale, mean |x|, and a bit for each value, 1 where it is negative: .129 bytes a value. Decodes to +-scale."""

    keeps_all: ClassVar[bool] = False
    biased: ClassVar[bool] = True

    def most_bytes(self, elements: int) -> int:
        return 4 + bytes_in_blocks(elements, 1)

    def elements_in(self, data: Buffer) -> int:
        elements, size = self._number(data), len(bytes_of(data))
        if size != self.most_bytes(elements):
            raise self._broken(f"{elements:,} values take {self.most_bytes(elements):,} bytes, not {size:,}")
        return elements

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import codec_loops as loops

        numbers_at(out, 0, np.uint32, 1)[0] = len(values)
        return 4 + loops.pack_signs(values, out[4:])

    def _decode(self, data: Bytes, out: Vector) -> None:
        from paceline.core.codecs import codec_loops as loops

        self._check_scales(data)
        loops.unpack_signs(data[4:], out)

    def _add(self, data: Bytes, out: Vector, weight: float) -> None:
        from paceline.core.codecs import codec_loops as loops

        self._check_scales(data)
        loops.add_signs(data[4:], out, weight)

    def _check_scales(self, data: Bytes) -> None:
        from paceline.core.codecs import codec_loops as loops

        scales = loops.scales_of_signs(data[4:])
        if not ((scales >= 0) & np.isfinite(scales)).all():
            raise self._broken("it has a scale that is negative, infinite or no number")
