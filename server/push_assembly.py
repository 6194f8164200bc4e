"""Assembles the incoming parts of a push: they must cover an array in order, without gaps, with finite values."""

from paceline.core import kernels
from paceline.core.codecs.codec import Codec
from paceline.core.errors import BadPush
from paceline.core.values import Vector


class Assembly:
    """Writes a worker's parts to their places. BadPush for a part that does not fit. Not thread-safe."""

    def __init__(self, worker: str, values: Vector, codec: Codec) -> None:
        self.values = values
        self._worker = worker
        self._codec = codec
        self._filled = 0
        self._placed: memoryview | None = None

    def place(self, offset: int, length: int) -> memoryview | None:
        """The place of the next part, if it is not coded."""
        is_whole = self._codec.lossless and length % 4 == 0
        self._placed = self._next(offset, length, length // 4).data.cast("B") if is_whole else None
        return self._placed

    def take(self, offset: int, data: memoryview) -> None:
        """Decodes one part to its place."""
        values = self._next(offset, len(data), self._codec.elements_in(data))
        if data is not self._placed:
            self._codec.decode(data, values)
        if not kernels.all_finite(values):
            raise BadPush(f"{self._worker} pushed NaN or infinity near element {offset:,}. Nothing was changed.")
        self._filled += len(values)

    def _next(self, offset: int, length: int, count: int) -> Vector:
        if offset != self._filled or offset + count > len(self.values):
            raise BadPush(
                f"{self._worker} sent {length} bytes for element {offset:,} of {len(self.values):,}; expected whole "
                f"elements, at most {len(self.values) - self._filled:,}, from {self._filled:,} on. Nothing was changed."
            )
        return self.values[offset : offset + count]

    def check_complete(self) -> None:
        """Raises BadPush if parts are missing at the end."""
        if self._filled != len(self.values):
            raise BadPush(f"{self._worker} sent {self._filled:,} of {len(self.values):,} values. Nothing was changed.")
