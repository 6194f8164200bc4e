"""ENSEMBLE: every worker trains alone; the models vote at the end."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.builtin.sgd import is_sgd, plain_sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Gathered, Own, Policy
from paceline.core.settings.codec import Pushes
from paceline.core.values import Vector


class Ensemble(Policy):
    """SHAT's other end, alpha = 0 [SHAT eq. 3]: w_i <- w_i - lr g_i. Gradients are still pushed and fold with lr / n, so the
    global model is the mean of the workers' models; ours: mean and vote of the local ones are scored too. With own steps of
    the run's optimizer workers push what these change, and 1 / n of it folds."""

    scores: ClassVar[tuple[str, ...]] = ("global", "mean", "vote")
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: policy.takes_local_step and not is_sgd(config.optimizer),
            "Policy {policy.name} takes plain steps at each worker, but optimizer.name is {optimizer.name}. Set "
            "optimizer.name=sgd, or policy.local_step=optimizer.",
        ),
    )
    local_step: Literal["plain", "optimizer"] = Field(
        "plain", description="The worker's own step: plain SGD, or one of the run's optimizer."
    )

    @property
    def takes_local_step(self) -> bool:  # type: ignore[override]
        return self.local_step == "plain"

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return self.takes_local_step

    @property
    def averages(self) -> bool:  # type: ignore[override]
        return not self.takes_local_step

    @property
    def worker_momentum(self) -> bool:  # type: ignore[override]
        return self.takes_local_step

    @property
    def keeps_start(self) -> bool:  # type: ignore[override]
        return not self.takes_local_step

    @property
    def pushes(self) -> Pushes:  # type: ignore[override]
        return "gradients" if self.takes_local_step else "differences"

    def step_pushes(self, members: int) -> float:
        """The scaling for own models: between one push a step and lock-step."""
        return math.sqrt(members)

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "workers' models never meet, and each learns from its own part of the data"

    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return optimizer if self.takes_local_step else plain_sgd(1.0)

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
        rate = lr if self.takes_local_step else optimizer.lr
        super().fold(weights, out, gathered, optimizer, rate / max(1, gathered.members), slots, steps)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    # worker half
    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        return None if self.takes_local_step else optimizer

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        if self.takes_local_step:
            return gradient
        assert own.start is not None
        return None if gradient is None else np.subtract(own.start, own.local)

    def pulls(self, clock: int) -> bool:
        return False

    def alpha(self, others: int | None, members: int) -> float:
        return 0.0
