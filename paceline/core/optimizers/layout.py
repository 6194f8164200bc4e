"""Which of the model's tensors lie where in a vector: in a server's slice, or in a worker's whole model."""

import itertools
import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Piece:
    """Elements of one tensor, from `start` to before `stop`; more than none."""

    tensor: int
    """Its number in the plan."""
    start: int
    stop: int


class Stretch(NamedTuple):
    """Neighbouring elements of a vector that are stepped alike."""

    start: int
    stop: int
    group: int = 0
    late: int = 0
    """Steps that they were left alone in."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a vector is made of, in order; a cut may go through a tensor."""

    names: tuple[str, ...]
    """Of all tensors of the model, by number, whether the vector has any of them or not."""
    pieces: tuple[Piece, ...]

    @classmethod
    def whole(cls, shapes: Sequence[tuple[str, tuple[int, ...]]]) -> "Layout":
        """The flat model's: one tensor behind the other."""
        ends = itertools.accumulate((math.prod(shape) for _, shape in shapes), initial=0)
        pieces = (Piece(tensor, *cut) for tensor, cut in enumerate(itertools.pairwise(ends)))
        return cls(tuple(name for name, _ in shapes), tuple(piece for piece in pieces if piece.start < piece.stop))

    def cut(self, ranges: Iterable[tuple[int, int]]) -> "Layout":
        """That of these ranges of the vector, put one behind the other."""
        found, end = list[Piece](), 0
        for first, last in ranges:
            shift = end - first
            found += [Piece(cut.tensor, cut.start + shift, cut.stop + shift) for cut in self.within(first, last)]
            end += last - first
        return Layout(self.names, tuple(found))

    def within(self, first: int, last: int) -> Iterator[Piece]:
        """Yields the pieces from element `first` to before `last`, cut there. Looks at no others: a plan by layers has as many
        ranges as tensors."""
        found = bisect_right(self.pieces, first, key=lambda piece: piece.stop)
        while first < last and found < len(self.pieces) and (piece := self.pieces[found]).start < last:
            yield Piece(piece.tensor, max(first, piece.start), min(last, piece.stop))
            found += 1
