"""Codecs that send only some values; all others are 0 for the receiver, and stay in the sender's residual."""

import math
from abc import abstractmethod
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from paceline.core.codecs.codec import Buffer, Bytes, Codec, bytes_of, numbers_at
from paceline.core.values import Vector

PAIR = 8
"""Most bytes of a value and its place."""
Share = Annotated[float, Field(gt=0, le=1, description="Part of the values that is sent (ratio).")]
Places = np.ndarray | slice
"""Places of values, or all of them."""


class SparseCodec(Codec):
    """The number of elements (uint32), then what each codec makes of the values it sends."""

    keeps_all: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    share: Share = 0.01

    @property
    def goes_by_share(self) -> bool:
        """Whether the share says how much is sent."""
        return True

    def elements_in(self, data: Buffer) -> int:
        return self._number(data)

    def places_in(self, data: Buffer, elements: int) -> Places:
        """Which of its elements a part has values of; BadPush as in `decode`."""
        return self._read(bytes_of(data), elements)[0]

    @abstractmethod
    def _read(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        """The places and values of a part, checked: within it, none twice, finite."""

    def _decode(self, data: Bytes, out: Vector) -> None:
        places, values = self._read(data, len(out))
        out.fill(0)
        out[places] = values

    def _add(self, data: Bytes, out: Vector, weight: float) -> None:
        places, values = self._read(data, len(out))
        out[places] += np.float32(weight) * values

    def _finite(self, values: Vector) -> Vector:
        from paceline.core import kernels

        if not kernels.all_finite(values):
            raise self._broken("NaN or infinity is in it")
        return values

    # places and values: how many (uint32), the values, the distances of their places
    def _write_pairs(self, places: np.ndarray, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import codec_loops as loops

        numbers_at(out, 0, np.uint32, 1)[0] = len(places)
        numbers_at(out, 4, np.float32, len(places))[:] = values
        start = 4 + 4 * len(places)
        return start + loops.write_varints(distances(places), out[start:])

    def _read_pairs(self, data: Bytes, elements: int) -> tuple[Places, Vector]:
        count = self._number(data)
        if 4 + 5 * count > len(data):
            raise self._broken(f"{len(data):,} bytes can't hold {count:,} values and their places")
        values = self._finite(numbers_at(data, 4, np.float32, count))
        return self._places(self._codes(data[4 + 4 * count :], count), elements), values

    def _codes(self, data: Bytes, count: int) -> np.ndarray:
        """`count` numbers, each of which takes a byte or more."""
        from paceline.core.codecs import codec_loops as loops

        codes = np.empty(min(count, len(data)), np.uint32)
        if count > len(data) or not loops.read_varints(data, codes):
            raise self._broken(f"{len(data):,} bytes don't hold {count:,} distances")
        return codes

    def _places(self, steps: np.ndarray, elements: int) -> np.ndarray:
        """The places that lie so far apart."""
        places = np.cumsum(steps, dtype=np.int64) - 1
        if len(places) and (not steps.all() or places[-1] >= elements):
            raise self._broken(f"places must rise and stay below {elements:,}")
        return places


def distances(places: np.ndarray) -> np.ndarray:
    """What each place is after the one before; the first: after -1."""
    return np.diff(places, prepend=np.uint32(0xFFFFFFFF))


def wanted(share: float, elements: int) -> int:
    """How many values a share is: at least 1."""
    return min(elements, math.ceil(share * elements))
