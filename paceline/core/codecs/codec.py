"""A codec says how float32 values travel: what each part of a slice becomes on the wire, and back."""

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict

from paceline.core import registry
from paceline.core.errors import BadPush
from paceline.core.extension import Extension, Options, SettingsRule, stem_of
from paceline.core.values import Vector

PACKAGE = "paceline.core.codecs.builtin"
Number = TypeVar("Number", bound=np.generic)
Bytes = npt.NDArray[np.uint8]
Buffer = bytes | bytearray | memoryview | Bytes
"""Contiguous bytes at any address."""
BLOCK = 1024
"""Values that share one scale, where a codec has some."""
MOST_ELEMENTS = 1 << 24
"""Of a part, whatever their bytes: 64 MiB as float32."""


class Run(NamedTuple):
    """Neighbouring elements of a slice: whole rows of one tensor, a piece of one, or elements that form no matrix."""

    length: int
    columns: int
    """Elements of the tensor's row, that is of all its axes but the first; 0: no matrix."""


class Cut(NamedTuple):
    """One part of a slice, and who encodes it."""

    start: int
    stop: int
    codec: "Codec"
    is_exact: bool = False
    """Whether its values travel as they are, so that error feedback has no part in them."""


class Codec(Extension, ABC):
    """One wire form. A part is any range of a slice's elements and is coded by itself; decoding gives every element
    (dense semantics). Its fields are the sender's options: the receiver needs only the bytes. Holds no state, so all
    threads may share it. Where values are not finite the receiver refuses the part, or gets some that are not."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str] = ""
    """As in the config and in messages: the stem of its file; of a user's file its
    path, of a package's the name of the entry point."""
    rules: ClassVar[tuple[SettingsRule, ...]] = ()
    """What it does not go with."""
    lossless: ClassVar[bool] = False
    """Whether decode(encode(x)) has the bits of x: then the caller may send and read the memory of x itself."""
    keeps_all: ClassVar[bool]
    """Whether every element arrives, if rounded: only then it may carry weights."""
    keeps_rounded: ClassVar[bool] = False
    """Whether a decoded part, wherever it is cut, is the same after another encoding: then it may be handed on and on."""
    unit: ClassVar[tuple[int, int]] = (0, 0)
    """Bytes, and the elements in them, that follow one another in an encoded part, so that it can be cut between them; zeros:
    it can't be cut."""
    biased: ClassVar[bool]
    """Whether what it loses adds up over the steps, so that training needs error feedback."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        cls.name = stem_of(cls)

    @abstractmethod
    def most_bytes(self, elements: int) -> int:
        """Most bytes that a part of `elements` can take on the wire; must grow with `elements` unless the codec overrides
        `cuts`."""

    def fitted(self, runs: tuple[Run, ...]) -> "Codec":
        """The same for a slice that is made of these runs, where a codec cares for matrices."""
        return self

    def at(self, element: int) -> "Codec":
        """The codec of a part that begins with this element."""
        return self

    def cuts(self, elements: int, part_bytes: int) -> Iterator[Cut]:
        """Cuts a slice of `elements` into parts of at most `part_bytes`, each of one element at least."""
        each = min(elements, MOST_ELEMENTS)
        if self.most_bytes(each) > part_bytes:
            each = bisect_right(range(each + 1), part_bytes, key=self.most_bytes) - 1
        each = max(1, each)
        return (Cut(start, min(start + each, elements), self) for start in range(0, elements, each))

    def pieces(self, parts: Iterable[tuple[int, memoryview]], most: int) -> Iterator[tuple[int, memoryview]]:
        """The encoded parts (first element, bytes), cut into pieces of at most `most` bytes where they can be cut."""
        size, elements = self.unit
        step = max(1, most // size) if size else 0
        for start, data in parts:
            if not step or len(data) <= most:
                yield start, data
                continue
            for unit in range(0, -(-len(data) // size), step):
                yield start + unit * elements, data[unit * size : (unit + step) * size]

    def encode(self, values: Vector, out: Buffer) -> int:
        """Writes the wire form of a part to the front of `out` and returns its length (bytes). BadPush, and `out`
        untouched, where `out` is shorter than `most_bytes`."""
        _check_type(values)
        room, most = len(bytes_of(out)), self.most_bytes(len(values))
        if room < most or len(values) > MOST_ELEMENTS:
            raise BadPush(
                f"A part of {len(values):,} values may take {most:,} bytes as {self.name}, but there is room for "
                f"{room:,}. Cut it into parts of at most {MOST_ELEMENTS:,} values."
            )
        return self._encode(values, bytes_of(out))

    @abstractmethod
    def elements_in(self, data: Buffer) -> int:
        """How many elements a part has, as its length or its header says; BadPush where that can't be."""

    def decode(self, data: Buffer, out: Vector) -> None:
        """Writes the part's float32 values to `out`; BadPush, and `out` untouched, where `encode` could not have made it from
        that many values."""
        self._check_fit(data, out)
        self._decode(bytes_of(data), out)

    def round(self, values: Vector) -> None:
        """In place, to what arrives of them: decode(encode(values))."""
        if not self.lossless:
            data = np.empty(self.most_bytes(len(values)), np.uint8)
            self.decode(data[: self.encode(values, data)], values)

    def add(self, data: Buffer, out: Vector, weight: float) -> None:
        """out += weight * decoded, for callers that keep account of what was sent; errors as in `decode`."""
        self._check_fit(data, out)
        self._add(bytes_of(data), out, weight)

    @abstractmethod
    def _encode(self, values: Vector, out: Bytes) -> int: ...

    @abstractmethod
    def _decode(self, data: Bytes, out: Vector) -> None: ...

    def _add(self, data: Bytes, out: Vector, weight: float) -> None:
        from paceline.core import kernels

        values = np.empty(len(out), np.float32)
        self._decode(data, values)
        kernels.add_scaled(out, values, weight)

    def _check_fit(self, data: Buffer, out: Vector) -> None:
        _check_type(out)
        if (elements := self.elements_in(data)) != len(out):
            raise BadPush(
                f"{len(bytes_of(data)):,} bytes as {self.name} are {elements:,} values; expected {len(out):,}. "
                "Both ends must use the same plan and codec: compare 'servers', 'model' and 'codec' in their "
                "config."
            )

    # for the codecs
    def _whole(self, data: Buffer, each: int) -> int:
        """The number of elements in a part where each takes `each` bytes."""
        count, rest = divmod(len(bytes_of(data)), each)
        if rest:
            raise BadPush(
                f"{len(bytes_of(data)):,} bytes came as {self.name}; expected whole elements of {each} bytes. "
                "Both ends must use the same plan and codec: compare 'servers', 'model' and 'codec' in their config."
            )
        return count

    def _number(self, data: Buffer, place: int = 0) -> int:
        """The `place`-th uint32 at the front of a part."""
        if len(bytes_of(data)) < 4 * (place + 1):
            raise self._broken(f"it ends after {len(bytes_of(data))} bytes")
        return int(numbers_at(bytes_of(data), 4 * place, np.uint32, 1)[0])

    def _broken(self, why: str) -> BadPush:
        """What to raise where a part can't be what `encode` makes of finite values."""
        return BadPush(f"A part is not a {self.name} of finite values: {why}. Nothing was changed.")


def numbers_at(data: Bytes, start: int, kind: type[Number], count: int) -> npt.NDArray[Number]:
    """`count` numbers of a part from byte `start` on, where they lie."""
    return np.frombuffer(data, kind, count, start)


def bytes_in_blocks(elements: int, bits: int) -> int:
    """Bytes that `elements` values take with `bits` each, and a float32 scale for each block of them."""
    return -(-elements * bits // 8) + 4 * -(-elements // BLOCK)


def bytes_of(data: Buffer) -> Bytes:
    """The same bytes as an array."""
    return np.frombuffer(data, np.uint8)


def _check_type(values: Vector) -> None:
    if values.dtype != np.float32:
        raise BadPush(f"Values of type {values.dtype} can't be coded; convert them to float32 first.")


@cache
def load_codec(name: str) -> Codec:
    """The codec that a message names, to decode with; ConfigError lists the known ones."""
    return registry.build(PACKAGE, Codec, name, {}, "codec")


def codecs_that(fit: Callable[[Codec], bool]) -> str:
    """The built-in ones that fit, for people, with default options."""
    return registry.listed(name for name in registry.names(PACKAGE) if fit(load_codec(name)))


def build_codec(options: Options, key: str) -> Codec:
    """The codec that the config names under `key`, its options checked."""
    return registry.build(PACKAGE, Codec, options.name, options.options, key)
