"""A slice's phase, the contents of its snapshot, and its report of a worker's state."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paceline.core.values import Vector


class Phase(StrEnum):
    """What a slice is ready for."""

    EMPTY = "empty"
    """It has no weights yet: pushes and pulls wait."""
    RECOVERING = "recovering"
    """Back from a snapshot: it waits until every member has reported its clocks."""
    SERVING = "serving"


@dataclass(frozen=True, slots=True, eq=False)
class SliceState:
    """The contents of a snapshot, all at one version: arrays of the slice's length, and a table of plain JSON values."""

    weights: Vector
    slots: Sequence[Vector]
    table: dict[str, Any]
    gathered: Vector | None = None
    """The sum of pushes that are buffered outside of rounds, where there are any."""
    lag: Vector | None = None
    """By which the mean of the versions lags behind (`RunningMean`), where one has begun."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A worker's state on a slice, as the slice reports it to a worker that joins or comes back."""

    term: int
    clock: int
    version: int
    phase: Phase
    lost: tuple[int, int] | None
    """First and last clock of this worker that a restart of the server lost, if it lost any."""
