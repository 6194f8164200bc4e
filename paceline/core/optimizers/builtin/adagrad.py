"""Adagrad: a weight whose gradients have been large moves less from then on."""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from paceline.core.optimizers.optimizer import Decay, Eps, Optimizer, Rate
from paceline.core.values import Vector


class Adagrad(Optimizer):
    """Duchi et al. 2011, the update of torch.optim.Adagrad (whose lr_decay a schedule replaces): g <- g + weight_decay *
    w; s <- s + g^2;  w <- w - lr * g / (sqrt(s) + eps)."""

    lr: Rate = 0.01
    eps: Eps = 1e-10
    initial_accumulator_value: float = Field(
        0.0, ge=0, allow_inf_nan=False, description="The sum of squared gradients before the first step."
    )
    weight_decay: Decay = 0.0

    @property
    def slots(self) -> int:
        return 1

    def new_slots(self, length: int) -> list[Vector]:
        return [np.full(length, self.initial_accumulator_value, dtype=np.float32)]

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
        # imported here: a mistake in the config must show without waiting for numba
        from paceline.core.optimizers import optimizer_loops as loops

        loops.adagrad(weights, out, gradient, slots[0], scale, lr, self.eps, self.weight_decay)

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        """s as in `step`, of this worker's gradients; g <- g / (sqrt(s) + eps)."""
        from paceline.core.optimizers import optimizer_loops as loops

        loops.adagrad_ahead(gradient, weights, slots[0], self.eps, self.weight_decay)
