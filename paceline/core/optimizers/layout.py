"""Which of the model's tensors lie where in a vector: in a server's slice, or in a worker's whole model."""

import itertools
import math
from collections.abc import Iterable, Sequence
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
            for piece in self.pieces:
                start, stop = max(first, piece.start), min(last, piece.stop)
                if start < stop:
                    found.append(Piece(piece.tensor, start - first + end, stop - first + end))
            end += last - first
        return Layout(self.names, tuple(found))
