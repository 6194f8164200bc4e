"""Momentum that a worker keeps of its own steps, where those of others come between."""

import numpy as np

from paceline.core.values import Vector


class WorkerMomentum:
    """DANA-Slim's [Hakimi et al. 2019]: v <- m v + g + wd w; what is pushed is m v + g + wd w, which points to where v is about
    to take the worker. The servers fold it with plain steps. Not thread-safe."""

    def __init__(self, momentum: float, decay: float) -> None:
        """`momentum`: m (ratio); `decay`: wd, the optimizer's weight decay."""
        self.momentum = momentum
        self.decay = decay
        self._velocity: Vector | None = None

    def look_ahead(self, gradient: Vector, weights: Vector) -> None:
        """Makes what is pushed of a gradient, in its place; `weights`: those that it was computed on."""
        from paceline.core import kernels  # here: a mistake in the config must show without waiting for numba

        if self._velocity is None:
            self._velocity = np.zeros_like(gradient)
        kernels.look_ahead(gradient, self._velocity, weights, self.momentum, self.decay)
