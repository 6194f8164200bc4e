"""What a worker gets out of one mini-batch."""

import math
from dataclasses import dataclass

from paceline.core.values import Vector


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one mini-batch gave."""

    gradient: Vector
    """In the order of `Replica.shapes`; overwritten by the next step, unless `keep_gradient` says otherwise."""
    loss: float
    examples: int
    finite: bool
    """False where the loss or any element of the gradient is not finite: push an empty update instead
    (docs/protocol.md#clocks)."""
    size: float = math.nan
    """The gradient's largest element, before clipping; NaN where it is not known."""
