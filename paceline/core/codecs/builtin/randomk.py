"""Values at random places, which a seed tells the receiver."""

import numpy as np

from paceline.core.codecs.codec import Bytes, numbers_at
from paceline.core.codecs.sparse_codec import Places, SparseCodec, wanted
from paceline.core.values import Vector


class Randomk(SparseCodec):
    """[Stich et al. 2018]: one value of each of `share` * n equal stretches of a part, 4 bytes each and none for its place; so
    every value's chance is the share. Not scaled by 1 / share, though that would be unbiased: error feedback sends the rest
    later, and with a scale would send more than it was given, growing without bound. The seed is a hash of the part."""

    def most_bytes(self, elements: int) -> int:
        return 16 + 4 * wanted(self.share, elements)

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import codec_loops as loops

        count, seed = wanted(self.share, len(values)), loops.seed_of(values)
        numbers_at(out, 0, np.uint32, 2)[:] = len(values), count
        numbers_at(out, 8, np.uint64, 1)[0] = seed
        numbers_at(out, 16, np.float32, count)[:] = values[loops.random_places(seed, len(values), count)]
        return 16 + 4 * count

    def _read(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        from paceline.core.codecs import codec_loops as loops

        count = self._number(data, 1)
        if len(data) != 16 + 4 * count or count > elements:
            raise self._broken(f"{len(data):,} bytes are no head and {count:,} of {elements:,} values")
        seed = int(numbers_at(data, 8, np.uint64, 1)[0])
        return loops.random_places(seed, elements, count), self._finite(numbers_at(data, 16, np.float32, count))
