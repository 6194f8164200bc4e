"""Writes the weights that come from a server into the flat model."""

from collections import deque

import numpy as np

from paceline.core.codecs.codec import Codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush
from paceline.core.slice.plan import Range
from paceline.core.values import Vector


class SliceSink:
    """Writes a slice's parts to their places in the flat model."""

    def __init__(self, model: Vector, ranges: tuple[Range, ...], codec: Codec | SliceCodec) -> None:
        self._codec = codec
        self.filled = 0
        """Elements received so far."""
        self._targets = deque(model[part.start : part.stop] for part in ranges)
        self._lacking = sum(map(len, self._targets))
        self._placed: memoryview | None = None

    def buffer(self, offset: int, length: int) -> memoryview | None:
        """The model's own memory, if the part is not coded and contiguous."""
        count = length // 4
        if (
            not self._codec.at(offset).lossless
            or offset != self.filled
            or not self._targets
            or len(self._targets[0]) < count
        ):
            return None
        self._placed = self._targets[0][:count].data.cast("B") if 4 * count == length else None
        return self._placed

    def take(self, offset: int, data: memoryview) -> None:
        """Decodes a part; it must follow the last one."""
        if offset != self.filled:
            raise BadPush(f"A part starts at element {offset:,}, expected {self.filled:,}.")
        codec = self._codec.at(offset)
        count = codec.elements_in(data)
        if count > self._lacking:
            raise BadPush(
                f"{count - self._lacking:,} elements too many came after element {self.filled:,} ({len(data)} bytes)."
            )
        if data is self._placed:
            self._next(count)
        elif self._targets and len(self._targets[0]) >= count:
            codec.decode(data, self._next(count))
        else:
            self._scatter(data, count, codec)

    def _scatter(self, data: memoryview, count: int, codec: Codec) -> None:
        """A part that goes to several ranges."""
        values = np.frombuffer(data, np.float32) if codec.lossless else np.empty(count, np.float32)
        if not codec.lossless:
            codec.decode(data, values)
        while len(values):
            target = self._next(min(len(self._targets[0]), len(values)))
            target[:] = values[: len(target)]
            values = values[len(target) :]

    def _next(self, count: int) -> Vector:
        """The place of the next `count` elements, which lie together."""
        target = self._targets[0][:count]
        self._targets[0] = self._targets[0][count:]
        if not len(self._targets[0]):
            self._targets.popleft()
        self.filled += count
        self._lacking -= count
        return target
