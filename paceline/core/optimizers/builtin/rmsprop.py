"""RMSProp: each gradient is divided by the size that the weight's last gradients had."""

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field

from paceline.core.optimizers.optimizer import Decay, Eps, Optimizer, Rate, Share
from paceline.core.values import Vector


class RmsProp(Optimizer):
    """Tieleman and Hinton 2012, the update of torch.optim.RMSprop (not centred): g <- g + weight_decay * w;
    s <- alpha * s + (1 - alpha) * g^2;  m <- momentum * m + g / (sqrt(s) + eps);  w <- w - lr * m."""

    usual_rate: ClassVar[float] = 0.001
    lr: Rate = 0.01
    alpha: Share = Field(0.99, description="Share of the running mean of squared gradients that goes on (ratio).")
    eps: Eps = 1e-8
    momentum: Share = Field(0.0, description="Share of the last move that goes on (ratio); 0 keeps one slot less.")
    weight_decay: Decay = 0.0

    @property
    def slots(self) -> int:
        return 2 if self.momentum else 1

    def spread(self, share: float) -> Self:
        return self.model_copy(update={"alpha": 1 - (1 - self.alpha) * share})

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

        rates = (scale, lr, self.alpha, self.eps, self.weight_decay)
        if self.momentum:
            loops.rmsprop_with_momentum(weights, out, gradient, slots[0], slots[1], *rates, self.momentum)
        else:
            loops.rmsprop(weights, out, gradient, slots[0], *rates)

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        """s as in `step`, of this worker's gradients; u = g / (sqrt(s) + eps); m <- momentum * m + u;
        g <- u + momentum * m."""
        from paceline.core import kernels
        from paceline.core.optimizers import optimizer_loops as loops

        loops.rmsprop_ahead(gradient, weights, slots[0], self.alpha, self.eps, self.weight_decay)
        if self.momentum:
            kernels.look_ahead(gradient, slots[1], weights, self.momentum, 0.0)
