"""An optimizer by which a test counts pushes."""

from collections.abc import Sequence
from typing import ClassVar

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.values import Vector


class Ledger(Optimizer):
    """Adds the raw sum to the weights, so that they count, exactly, whose pushes are in them."""

    name: ClassVar[str] = "ledger"

    @property
    def slots(self) -> int:
        return 0

    def step(
        self,
        weights: Vector,
        out: Vector,
        gradient: Vector,
        scale: float,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        out[:] = weights + gradient
