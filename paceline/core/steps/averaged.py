"""Tensors that are no weights, like the running statistics of BatchNorm: servers keep the mean of what workers have."""

from collections.abc import Sequence

from paceline.core.steps.optimizer import Optimizer
from paceline.core.values import Vector


class Averaged(Optimizer):
    """Its "gradient" is how far a worker's values have gone back since they were pulled, so that a plain step by the mean of
    several brings the mean of their values; by one of them alone, its share of that. No rate has a part in it."""

    is_still: bool = False
    """Whether a step changes nothing: at a worker, whose values have gone there by themselves."""
    share: float = 1.0
    """Of the workers, behind a step."""

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
        """out <- weights - share * scale * gradient."""
        out[:] = weights
        if not self.is_still:
            from paceline.core import kernels  # here: a mistake in the config must show without waiting for numba

            kernels.plain_step(out, gradient, self.share * scale)
