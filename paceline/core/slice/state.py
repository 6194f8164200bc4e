"""A slice's phase, the contents of its snapshot, and its report of a worker's state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from paceline.core.slice.copies import Copies
from paceline.core.values import Published, Sparse, Vector


class Phase(StrEnum):
    """What a slice is ready for."""

    EMPTY = "empty"
    """It has no weights yet: pushes and pulls wait."""
    SERVING = "serving"


@dataclass(frozen=True, slots=True, eq=False)
class SliceState:
    """The contents of a snapshot, all at one version: arrays of the slice's length, and a table of plain JSON values."""

    weights: Vector
    slots: Sequence[Vector]
    table: dict[str, Any]
    gathered: Vector | None = None
    """The sum of dense pushes that are buffered outside of rounds, where there are any."""
    lag: Vector | None = None
    """By which the mean of the versions lags behind (`RunningMean`), where one has begun."""
    shares: Mapping[str, Sparse] = field(default_factory=dict)
    """By worker the sums of sparse pushes that are buffered outside of rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A slice's state of one moment, to be written while the slice trains on."""

    state: SliceState
    """Its arrays are whole once `copies` are done."""
    copies: Copies
    """Of the arrays that training changes in place."""
    weights: Published
    """Pinned, to be given to `release` at the end."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker's state on a slice, as the slice reports it to a worker that joins or comes back."""

    term: int
    clock: int
    durable: int
    """The worker's clock in the newest snapshot on disk."""
    version: int
    phase: Phase
    oldest: int = 0
    """The oldest version of the weights that is still given out."""
    position: int | None = None
    """Mini-batches that its script had done with this clock; None: its pushes don't say."""
