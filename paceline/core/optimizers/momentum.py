"""Momentum that a worker keeps itself, where other workers' steps come between its steps."""

from collections.abc import Sequence
from typing import Self

import numpy as np

from paceline.core.optimizers.layout import Stretch
from paceline.core.values import Vector


class WorkerMomentum:
    """DANA-Slim's [Hakimi et al. 2019]: v <- m v + g + wd w; what is pushed is m v + g + wd w, which points to where v is about
    to take the worker. The servers fold it with plain steps. Not thread-safe."""

    def __init__(
        self,
        momentum: float,
        decay: float,
        groups: Sequence[tuple[float, float]] = (),
        stretches: Sequence[Stretch] | None = None,
    ) -> None:
        """`momentum`: m (ratio); `decay`: wd, the optimizer's weight decay; `groups`: both of each group, where there are any,
        and `stretches` where they lie."""
        self.momentum = momentum
        self.decay = decay
        self._options = groups or ((momentum, decay),)
        self._stretches = stretches
        self._velocity: Vector | None = None

    def after(self, before: "WorkerMomentum | None") -> Self:
        """This one, which goes on with the velocity of the one before."""
        if before is not None:
            self._velocity = before._velocity
        return self

    def look_ahead(self, gradient: Vector, weights: Vector, stretches: Sequence[Stretch] | None = None) -> None:
        """Makes what is pushed of a gradient, in its place; `weights`: those that it was computed on; `stretches`: what is
        not left alone, where that is not all."""
        from paceline.core import kernels  # here: a mistake in the config must show without waiting for numba

        if self._velocity is None:
            self._velocity = np.zeros_like(gradient)
        found = self._stretches if stretches is None else stretches
        for start, stop, group, _ in (Stretch(0, len(gradient)),) if found is None else found:
            here = slice(start, stop)
            kernels.look_ahead(gradient[here], self._velocity[here], weights[here], *self._options[group])
