"""Weights on their way to those who asked for them: straight from the slice, or, where the caller may be slow, from a copy on
disk, which holds no memory and no version that training needs."""

import os
import shutil
import tempfile
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush, Overloaded
from paceline.core.values import Published, Vector
from paceline.rpc.roles import caller
from paceline.rpc.transport import encoded_parts, weights_codec
from paceline.server.slice_driver import PATIENCE, SliceDriver

_FRESH = 1.0
"""Age up to which a copy serves readers who ask for the newest weights: they cost one copy a second, however many they are."""
_SPARED = 2
"""Slices' sizes of free disk that copies leave to the next snapshot, besides the optimizer's arrays."""
_MOST_SLOW = 4096
"""Names of slow callers that are remembered."""
Parts = Iterator[tuple[int, memoryview]]


class CopyOnDisk:
    """One version of a slice in a file without a name, which is gone with its last reader. Thread-safe."""

    def __init__(self, term: int, version: int, is_mean: bool, values: Vector, folder: Path) -> None:
        """Raises OSError where the disk takes nothing."""
        self.of = (term, version, is_mean)
        self.version = version
        self.length = len(values)
        self.made = time.monotonic()
        file = tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115 - it lives as long as its readers
        weakref.finalize(self, file.close)
        self._file = file.fileno()
        left = memoryview(values.data).cast("B")
        while left:
            left = left[os.write(self._file, left) :]

    def parts(self, codec: SliceCodec, part_bytes: int) -> Parts:
        """The version's encoded parts; each lasts until the next one. Raises Overloaded where the disk does not give it
        back."""
        most, stop = max(1, part_bytes // 4), 0
        room = np.empty(min(most, self.length), np.float32)
        while (start := stop) < self.length:
            stop = min(start + most, codec.exact_from if start < codec.exact_from else self.length)
            values = room[: stop - start]
            try:
                count = os.preadv(self._file, [values.data], 4 * start)
            except OSError as error:
                raise Overloaded(f"The copy of version {self.version} can't be read: {error}. Ask again.") from error
            if count < values.nbytes:
                raise Overloaded(f"The copy of version {self.version} is damaged on the disk. Ask again.")
            for offset, data in encoded_parts(values, codec.at(start), part_bytes):
                yield start + offset, data


class OutgoingWeights:
    """Knows who reads copies: all with the role reader, and each caller that was slow before. Thread-safe."""

    def __init__(self, driver: SliceDriver, folder: Path) -> None:
        """`folder`: where copies lie."""
        self._driver = driver
        self._folder = folder
        self._slow: set[str] = set()
        self._newest: CopyOnDisk | None = None
        self._copying = threading.Lock()

    def recent(self, is_mean: bool) -> CopyOnDisk | None:
        """A copy for a reader who wants the newest weights, if there is one that is new enough."""
        found = self._newest
        if found is None or caller().role != "reader" or time.monotonic() - found.made >= _FRESH:
            return None
        return found if found.of[::2] == (self._driver.term, is_mean) else None

    @contextmanager
    def parts(
        self, weights: Published | CopyOnDisk, codec_name: str, part_bytes: int, who: str, is_mean: bool = False
    ) -> Iterator[tuple[SliceCodec, Parts]]:
        """The codec of that name, and the weights' parts in it for this caller; a version is released at the end, or as soon as
        it is copied. Raises Overloaded where training has taken it back meanwhile, and where the disk has no room for a
        copy."""
        begun, held = time.monotonic(), weights if isinstance(weights, Published) else None
        try:
            codec = self._driver.coding(weights_codec(codec_name))
            if held is not None and (caller().role == "reader" or who in self._slow):
                weights = self._copied(held, is_mean)
                self._driver.release(held)
                held = None
            if isinstance(weights, CopyOnDisk):
                yield codec, weights.parts(codec, part_bytes)
            else:
                yield codec, self._held(weights, codec, part_bytes, who)
        finally:
            if held is not None:
                self._driver.release(held)
        if isinstance(weights, CopyOnDisk) or not weights.is_lost:
            self._note(who, time.monotonic() - begun)

    def _copied(self, weights: Published, is_mean: bool) -> CopyOnDisk:
        with self._copying:
            found, term = self._newest, self._driver.term
            if found is None or found.of != (term, weights.version, is_mean):
                self._check_room(weights.values.nbytes)
                try:
                    found = CopyOnDisk(term, weights.version, is_mean, weights.values, self._folder)
                except OSError as error:
                    raise Overloaded(
                        f"Server {self._driver.index} can't write a copy of its weights to {self._folder}: "
                        f"{error.strerror}. Ask again, or give its folder a disk that works."
                    ) from error
                self._newest = found
            return found

    def _check_room(self, size: int) -> None:
        spared = (_SPARED + self._driver.model_slice.optimizer.slots) * size
        free = shutil.disk_usage(self._folder).free
        if free < size + spared:
            raise Overloaded(
                f"Server {self._driver.index} has {free:,} bytes free on the disk of {self._folder}; a copy of its weights "
                f"takes {size:,}, and the next snapshot needs {spared:,}. Free some, then ask again."
            )

    def _held(self, weights: Published, codec: SliceCodec, part_bytes: int, who: str) -> Parts:
        """Parts of a version that training may take back: what was sent since is of no use, so the call fails."""
        try:
            yield from encoded_parts(weights.values, codec, part_bytes)
        except BadPush:  # another version is just being written there
            if not weights.is_lost:
                raise
        if weights.is_lost:
            self._note(who, PATIENCE)
            raise Overloaded(
                f"{who} took more than {PATIENCE:g} s to read version {weights.version}, and training needed its memory. Ask "
                "again: the next answer comes from a copy on disk, at any speed."
            )

    def _note(self, who: str, seconds: float) -> None:
        """Remembers who was slow, until it has been quick again."""
        if seconds < PATIENCE:
            self._slow.discard(who)
        elif caller().role != "reader" and len(self._slow) < _MOST_SLOW:
            self._slow.add(who)
