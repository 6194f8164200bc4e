"""What a worker gets out of one mini-batch."""

import math
from dataclasses import dataclass

from paceline.core.values import AS_SET, Manner, Position, Vector


class Finished(BaseException):
    """The script has done its share, before the run's end where that is counted in examples. A BaseException, so that no code
    catches it by accident."""


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one mini-batch gave."""

    gradient: Vector
    """In the order of `Replica.shapes`; overwritten by the next step, unless `keep_gradient` says otherwise."""
    loss: float
    examples: int
    finite: bool
    """False where the loss or any element of the gradient is not finite: push an empty update instead
    (docs/understand/protocol.md#clocks)."""
    size: float = math.nan
    """The gradient's largest element, before clipping; NaN where it is not known."""
    manner: Manner = AS_SET
    """How the optimizer should step with the gradient."""
    position: Position | None = None
    """Where a script is in its data with this step; None: one mini-batch further."""
    searches: bool = False
    """Whether a script's gradient scaler still looks for its factor, so that a gradient that is not finite says nothing."""
