"""Matrix: the mixing weights as the user gives them."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from pydantic import Field, field_validator

from paceline.core.errors import ConfigError
from paceline.core.peers.topology import SEATS, Members, Mixing, Topology, fault


class Matrix(Topology):
    """Row i, column j: what rank j's model weighs in rank i's next one. Who is not there is passed through, as a random
    walk by these weights would see it: W_ij += W_ik W_kj / (1 - W_kk) for a missing k [Meyer 1989, the stochastic
    complement]; what is left stays doubly stochastic and connected."""

    rows: tuple[tuple[float, ...], ...] = Field(
        description="One row of weights for each rank; rows and columns sum to 1."
    )

    @field_validator("rows")
    @classmethod
    def _mixes(cls, rows: tuple[tuple[float, ...], ...]) -> tuple[tuple[float, ...], ...]:
        lengths = [len(row) for row in rows]
        if set(lengths) - {len(rows)}:
            raise ValueError(f"got {len(rows)} rows with {lengths} weights; give each row one weight for each rank.")
        wrong = fault(np.array(rows))
        if wrong:
            raise ValueError(wrong)
        return rows

    def weights(self, members: Members) -> Mixing:
        size, seats = len(self.rows), [member % SEATS for member in members]
        if max(seats) >= size:
            raise ConfigError(
                f"topology.rows has weights for ranks 0 to {size - 1}, but rank {max(seats)} is a member. Add "
                "rows and columns, start fewer workers, or use another topology; the others fit any number of "
                "workers."
            )
        order = np.argsort(np.argsort(seats))
        return _without(self.rows, tuple(sorted(seats)))[np.ix_(order, order)]

    def _reached(self, place: int, members: Members) -> Iterable[int]:
        return np.flatnonzero(self.weights(members)[:, place]).tolist()


@lru_cache(maxsize=4)
def _without(rows: tuple[tuple[float, ...], ...], members: Members) -> Mixing:
    """The weights among the members; read only."""
    matrix = np.array(rows)
    for gone in sorted(set(range(len(rows))) - set(members), reverse=True):
        matrix += np.outer(matrix[:, gone], matrix[gone]) / (1 - matrix[gone, gone])
        matrix = np.delete(np.delete(matrix, gone, 0), gone, 1)
    matrix.flags.writeable = False
    return matrix
