"""Torus: a grid whose edges meet; everybody is linked to the four around."""

from collections.abc import Iterable
from math import isqrt

from paceline.core.peers.topology import Members, Topology


class Torus(Topology):
    """The grid is as square as the number of members allows (12: 3 x 4), row by row; a prime number makes a ring."""

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        size = len(members)
        rows = next(rows for rows in range(isqrt(size), 0, -1) if size % rows == 0)
        columns = size // rows
        row, column = divmod(place, columns)
        around = [(row, column + 1), (row, column - 1), (row + 1, column), (row - 1, column)]
        return [r % rows * columns + c % columns for r, c in around]
