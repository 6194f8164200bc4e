"""Elastic averaging: workers train on their own; an elastic force ties them to a common centre."""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field

from paceline.core.optimizers.builtin.sgd import plain_sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Gathered, Own, Policy
from paceline.core.settings.codec import Pushes
from paceline.core.values import Vector


class Easgd(Policy):
    """Asynchronous EASGD [SHAT; Zhang et al. 2015]; with momentum in the run's optimizer, which the workers use, EAMSGD. After
    tau own steps the worker pushes x = w_i; then d = a (w_i - w), w += d, w_i -= d, with a = beta / n.
    The worker sees w after the fold: d = a / (1 - a) * (w_i - w_after), hence alpha = a / (1 - a). Ours: a single worker is
    itself the centre, so it trains as one process does."""

    averages: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "tau"
    pushes: ClassVar[Pushes] = "weights"
    worker_momentum: ClassVar[bool] = False
    beta: float = Field(0.9, gt=0, lt=1, description="Strength of all elastic forces together (ratio).")
    tau: int = Field(
        1, ge=1, description="Own steps between two pushes (steps); more of them send less and tie the models less."
    )

    def step_pushes(self, members: int) -> float:
        """How the workers' own steps scale their rate: models tied after each step take a whole mini-batch's rate; for others
        that adds too much noise (docs/choose/policies.md)."""
        return members if self.tau == 1 else math.sqrt(members)

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "workers' models only lean towards one another, less with a larger policy.tau"

    # server half
    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return plain_sgd(1.0)

    def fold(
        self,
        weights: Vector,
        out: Vector,
        gathered: Gathered,
        optimizer: Optimizer,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        from paceline.core import kernels

        if out is not weights:
            np.copyto(out, weights)
        kernels.mix(out, gathered.total, self._force(gathered.members))

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    # worker half
    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        return optimizer

    @property
    def most_steps(self) -> int:
        return self.tau

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        """Pushes the model, even without a usable gradient: the move of the centre pulls the worker back. Not one that has
        exploded."""
        from paceline.core import kernels

        return own.local.copy() if kernels.all_finite(own.local) else None

    def alpha(self, others: int | None, members: int) -> float:
        return 0.0 if members <= 1 else self._force(members) / (1 - self._force(members))

    def _force(self, members: int) -> float:
        """a."""
        return 1.0 if members <= 1 else self.beta / members
