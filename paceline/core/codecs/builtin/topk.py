"""The largest values, whatever their size."""

from typing import Literal

import numpy as np
from pydantic import Field

from paceline.core.codecs.codec import Bytes, numbers_at
from paceline.core.codecs.sparse_codec import PAIR, Places, SparseCodec, wanted
from paceline.core.values import Vector

_MOST = 1.5
"""How far the number of values may be from what was asked for, where the threshold is estimated."""


class Topk(SparseCodec):
    """[Aji and Heafield 2017; Lin et al. 2018]: the `share` of each part that is largest, exact values; zeros are never sent.
    About 5 bytes for each of them at a share of .01, 6 at .001."""

    threshold: Literal["exact", "sampled"] = Field(
        "exact",
        description="sampled: values above a size estimated from some of them, so the number sent differs a little.",
    )

    def most_bytes(self, elements: int) -> int:
        return 8 + PAIR * self._most(elements)

    def _most(self, elements: int) -> int:
        count = wanted(self.share, elements)
        return count if self.threshold == "exact" else min(elements, int(_MOST * count) + 1)

    def _encode(self, values: Vector, out: Bytes) -> int:
        numbers_at(out, 0, np.uint32, 1)[0] = len(values)
        return 4 + self._write_pairs(*self._chosen(values), out[4:])

    def _chosen(self, values: Vector) -> tuple[np.ndarray, Vector]:
        from paceline.core.codecs import codec_loops as loops

        count = wanted(self.share, len(values))
        if self.threshold == "sampled":
            places, found = loops.reaching(values, loops.sampled_magnitude(values, self.share))
            if count / _MOST <= len(places) <= self._most(len(values)):
                return places, found
        return loops.largest(values, count)

    def _read(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        return self._read_pairs(data[4:], elements)
