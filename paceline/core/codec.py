"""A codec says how float32 values travel: what each part of a slice becomes on the wire, and back."""

from abc import ABC, abstractmethod
from functools import cache
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

from paceline.core import registry
from paceline.core.errors import BadPush
from paceline.core.values import Vector

PACKAGE = "paceline.core.codecs"
Buffer = bytes | bytearray | memoryview | npt.NDArray[np.uint8]
"""Contiguous bytes at any address."""


class Codec(BaseModel, ABC):
    """One wire form. A part is any range of a slice's elements and is coded by itself; decoding gives every element
    (dense semantics). Holds no state, so all threads may share it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str]
    lossless: ClassVar[bool] = False
    """Whether decode(encode(x)) has the bits of x: then the caller may send and read the memory of x itself."""

    @abstractmethod
    def bytes_for(self, elements: int) -> int:
        """Bytes that a part of so many elements takes on the wire."""

    def encode(self, values: Vector, out: Buffer) -> None:
        """Writes the wire form of a part to `out`, which has exactly its size; BadPush where it has not."""
        self._check(values, out)
        self._encode(values, out)

    def decode(self, data: Buffer, out: Vector) -> None:
        """Writes the part's float32 values to `out`; BadPush, and `out` untouched, where the sizes don't fit."""
        self._check(out, data)
        self._decode(data, out)

    @abstractmethod
    def _encode(self, values: Vector, out: Buffer) -> None: ...

    @abstractmethod
    def _decode(self, data: Buffer, out: Vector) -> None: ...

    def _check(self, values: Vector, data: Buffer) -> None:
        if values.dtype != np.float32:
            raise BadPush(f"Values of type {values.dtype} can't be coded; convert them to float32 first.")
        elements, seen, expected = len(values), _bytes_in(data), self.bytes_for(len(values))
        if seen != expected:
            raise BadPush(
                f"A part of {elements:,} values takes {expected:,} bytes as {self.name}, but there are {seen:,}. "
                "Both ends must use the same plan and codec: compare 'servers', 'model' and 'codec' in their config."
            )


def _bytes_in(data: Buffer) -> int:
    return len(data) if isinstance(data, bytes | bytearray) else data.nbytes


@cache
def load_codec(name: str) -> Codec:
    """The codec that the config names; ConfigError lists the known ones."""
    return registry.build(PACKAGE, Codec, name, {}, "codec")
