"""PowerSGD: each tensor's matrix as the product of two thin ones."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.codecs.codec import MOST_ELEMENTS, Buffer, Bytes, Codec, Cut, Run, bytes_of, numbers_at
from paceline.core.errors import BadPush
from paceline.core.values import Vector

if TYPE_CHECKING:
    from paceline.core.codecs.low_rank import Factor

_HEAD = 4
"""Words (4 bytes) before the factors."""
_MOST_RANK = 32
"""Decoding takes rank * elements steps, so a sender may not choose any rank it likes."""
_SIDE = math.isqrt(MOST_ELEMENTS)
_LARGEST = float(np.finfo(np.float32).max)


class Shape(NamedTuple):
    """What is in a part: a matrix, if it has rows, then values as they are."""

    rows: int
    columns: int
    tail: int

    @property
    def elements(self) -> int:
        return self.rows * self.columns + self.tail

    def words(self, rank: int) -> int:
        """float32 values that travel instead."""
        return rank * (self.rows + self.columns) + self.tail


class Powersgd(Codec):
    """[Vogels et al. 2019]: a matrix of rows x columns becomes factors of `rank` * (rows + columns) values. Matrices are a
    tensor's whole rows in the slice (its first axis by all others), or near-square where these are too few; float32 as it is
    where factors would not be shorter, of 1-D tensors, and of rows that the slice's ends cut. A part: numbers of elements,
    rows, columns, and the rank (uint32), the factors (float32; see `low_rank`), then what is no matrix (float32).

    The paper starts from the last step's factor. This holds no state: it takes two rounds of power iteration from random
    columns, which is nearer to the paper's "best approximation" (four rounds). The columns change with the values: with the
    same columns at each push, error feedback would never send what lies at right angles to them."""

    keeps_all: ClassVar[bool] = False
    biased: ClassVar[bool] = True
    rank: int = Field(4, ge=1, le=_MOST_RANK, description="Columns of each factor: more send more, more exactly.")
    _runs: tuple[Run, ...] = PrivateAttr(())
    _shape: Shape | None = PrivateAttr(None)

    def fitted(self, runs: tuple[Run, ...]) -> "Powersgd":
        other = self.model_copy()
        other._runs = runs
        return other

    def cuts(self, elements: int, part_bytes: int) -> Iterator[Cut]:
        runs = self._runs or (Run(elements, elements),)
        if (found := sum(run.length for run in runs)) != elements:
            raise BadPush(f"A slice of {found:,} values can't be cut as one of {elements:,}. Use the plan's slices.")
        start = 0
        for shape in self._parts(runs, part_bytes // 4 - _HEAD):
            coder = self.model_copy()
            coder._shape = shape
            yield Cut(start, start + shape.elements, coder)
            start += shape.elements

    def most_bytes(self, elements: int) -> int:
        return 4 * (_HEAD + self._shape_of(elements).words(self.rank))

    def elements_in(self, data: Buffer) -> int:
        return self._head(data)[0].elements

    def _encode(self, values: Vector, out: Bytes) -> int:
        from paceline.core.codecs import low_rank

        shape = self._shape_of(len(values))
        rank = self.rank if shape.rows else 0
        left, right, tail = self._split(out, shape, rank)
        numbers_at(out, 0, np.uint32, _HEAD)[:] = len(values), *shape[:2], rank
        if shape.rows:
            low_rank.factorise(values[: -shape.tail or None], left, right)
        tail[:] = values[len(values) - shape.tail :]
        return 4 * (_HEAD + shape.words(self.rank))

    def _decode(self, data: Bytes, out: Vector) -> None:
        from paceline.core.codecs import low_rank

        left, right, tail = self._read(data)
        low_rank.multiply(left, right, out[: len(out) - len(tail)])
        out[len(out) - len(tail) :] = tail

    def _add(self, data: Bytes, out: Vector, weight: float) -> None:
        from paceline.core import kernels
        from paceline.core.codecs import low_rank

        left, right, tail = self._read(data)
        low_rank.add_product(left, right, out[: len(out) - len(tail)], weight)
        kernels.add_scaled(out[len(out) - len(tail) :], tail, weight)

    # what a part is made of
    def _shape_of(self, elements: int) -> Shape:
        """The shape of a part that this encodes: as it was cut, or near-square if it was not."""
        if self._shape and self._shape.elements == elements:
            return self._shape
        columns = math.isqrt(elements)
        rows = elements // max(columns, 1)
        return Shape(rows, columns, elements - rows * columns) if self._pays(rows, columns) else Shape(0, 0, elements)

    def _head(self, data: Buffer) -> tuple[Shape, int]:
        """The shape of a part and its rank, of exactly as many bytes."""
        elements, rows, columns, rank = (self._number(data, place) for place in range(_HEAD))
        shape, size = Shape(rows, columns, elements - rows * columns), len(bytes_of(data))
        is_plain = not (rows or columns or rank)
        if shape.tail < 0 or not (is_plain or (1 <= rank <= _MOST_RANK and rank * (rows + columns) < rows * columns)):
            raise self._broken(f"{rows:,} x {columns:,} of {elements:,} values, of rank {rank:,}, is no such matrix")
        if size != 4 * (_HEAD + shape.words(rank)):
            raise self._broken(f"{elements:,} values take {4 * (_HEAD + shape.words(rank)):,} bytes, not {size:,}")
        return shape, rank

    def _read(self, data: Bytes) -> "tuple[Factor, Factor, Vector]":
        """Left and right factor and tail of a part; what they stand for is finite."""
        from paceline.core import kernels

        shape, rank = self._head(data)
        left, right, tail = self._split(data, shape, rank)
        largest = rank * float(np.abs(left).max(initial=0)) * float(np.abs(right).max(initial=0))
        if not (largest <= _LARGEST and kernels.all_finite(tail)):
            raise self._broken("NaN or infinity is in it, or comes of it")
        return left, right, tail

    def _split(self, data: Bytes, shape: Shape, rank: int) -> "tuple[Factor, Factor, Vector]":
        """Where the factors and the tail lie in a part."""
        left, right = rank * shape.rows, rank * shape.columns
        words = numbers_at(data, 4 * _HEAD, np.float32, left + right + shape.tail)
        factors = words[:left].reshape(rank, shape.rows), words[left : left + right].reshape(rank, shape.columns)
        return *factors, words[left + right :]

    # what goes into which part
    def _parts(self, runs: tuple[Run, ...], room: int) -> Iterator[Shape]:
        """Parts of at most `room` words, as few as it takes: what is no matrix goes behind the one before it."""
        part = Shape(0, 0, 0)
        for rows, columns in (piece for run in runs for piece in self._pieces(run, room)):
            if self._pays(rows, columns):
                if part.elements:
                    yield part
                part = Shape(rows, columns, 0)
                continue
            left = rows * columns
            while left:
                taken = max(0, min(left, room - part.words(self.rank), MOST_ELEMENTS - part.elements))
                taken = taken if part.elements else max(1, taken)
                part, left = part._replace(tail=part.tail + taken), left - taken
                if left:
                    yield part
                    part = Shape(0, 0, 0)
        if part.elements:
            yield part

    def _pieces(self, run: Run, room: int) -> Iterator[tuple[int, int]]:
        """Rows and columns of the matrices that a run is cut into, equal as far as may be, and of what is left of it."""
        length, columns = run
        rows = length // columns if columns else 0
        most = min(rows, MOST_ELEMENTS // columns, room // self.rank - columns) if rows else 0
        if most > 0 and self._pays(each := -(-rows // -(-rows // most)), columns):
            for first in range(0, rows, each):
                yield min(each, rows - first), columns
            length -= rows * columns
        elif columns:
            each = min(_SIDE, room // (2 * self.rank)) ** 2
            while each and length:
                columns = math.isqrt(min(each, length))
                yield min(each, length) // columns, columns
                length -= min(each, length) // columns * columns
        yield length, 1

    def _pays(self, rows: int, columns: int) -> bool:
        """Whether factors are shorter than the matrix, by more than a part's head."""
        return rows * columns - self.rank * (rows + columns) > _HEAD
