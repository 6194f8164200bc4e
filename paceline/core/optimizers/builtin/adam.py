"""Adam: momentum, divided by the size that the weight's last gradients had."""

from collections.abc import Sequence
from typing import ClassVar, Self

from pydantic import Field

from paceline.core.optimizers.optimizer import Decay, Eps, Optimizer, Rate, Share
from paceline.core.values import Vector


class Adam(Optimizer):
    """Kingma and Ba 2015, the update of torch.optim.Adam (not amsgrad): g <- g + weight_decay * w;
    m <- b1 * m + (1 - b1) * g;  s <- b2 * s + (1 - b2) * g^2, and in the slice's step t
    w <- w - lr * m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + eps)."""

    usual_rate: ClassVar[float] = 0.001
    lr: Rate = 0.001
    betas: tuple[Share, Share] = Field(
        (0.9, 0.999), description="Shares of the running means of gradients and of their squares that go on (ratios)."
    )
    eps: Eps = 1e-8
    weight_decay: Decay = 0.0

    @property
    def slots(self) -> int:
        return 2

    def spread(self, share: float) -> Self:
        first, second = (1 - (1 - beta) * share for beta in self.betas)
        return self.model_copy(update={"betas": (first, second)})

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

        decay, shrink = self._pulls(lr)
        mean, square = slots
        loops.adam(weights, out, gradient, mean, square, scale, lr, self.betas, self.eps, steps, decay, shrink)

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        """m and s as in `step`, of this worker's gradients, with m^ = m / (1 - b1^t) and s^ = s / (1 - b2^t) in its push t:
        g <- (m^ + (1 - b1) * (g - m^)) / (sqrt(s^) + eps), as NAdam [Dozat 2016]."""
        from paceline.core.optimizers import optimizer_loops as loops

        mean, square = slots
        loops.adam_ahead(gradient, weights, mean, square, self.betas, self.eps, pushes, self._pulls(0.0)[0])

    def _pulls(self, lr: float) -> tuple[float, float]:
        """Weight decay as a share of the weight to add to its gradient, and as a factor of the weight itself."""
        return self.weight_decay, 1.0
