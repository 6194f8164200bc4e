"""What a slice is ready for, what a snapshot of it holds, and what it tells a worker of where it stands."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from paceline.core.values import Vector


class Phase(StrEnum):
    """What a slice is ready for."""

    EMPTY = "empty"
    """No weights yet: pushes and pulls wait."""
    RECOVERING = "recovering"
    """Back from a snapshot: waits until every member has said where it stands."""
    SERVING = "serving"


@dataclass(frozen=True, slots=True, eq=False)
class SliceState:
    """What a snapshot holds, all at one version: arrays of the slice's length, and a table of plain JSON values."""

    weights: Vector
    slots: Sequence[Vector]
    table: dict[str, Any]
    gathered: Vector | None = None
    """The sum of pushes that are buffered outside of rounds, where there are any."""
    lag: Vector | None = None
    """By which the mean of the versions lags behind (`RunningMean`), where one has begun."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a worker stands on a slice, told to one that joins or comes back."""

    term: int
    clock: int
    version: int
    phase: Phase
    lost: tuple[int, int] | None
    """First and last clock of this worker that a restart of the server lost, where it lost any."""
