"""ENSEMBLE: every worker trains alone; the models vote at the end."""

import math
from collections.abc import Sequence
from typing import ClassVar

from paceline.core.extension import SettingsRule
from paceline.core.steps.optimizer import Optimizer
from paceline.core.steps.optimizers.sgd import is_sgd
from paceline.core.sync.clocks import Clocks
from paceline.core.sync.policy import Gathered, Policy
from paceline.core.values import Vector


class Ensemble(Policy):
    """SHAT's other end, alpha = 0 [SHAT eq. 3]: w_i <- w_i - lr g_i. Gradients are still pushed and fold with lr / n, so the
    global model is the mean of the workers' models; ours: mean and vote of the local ones are scored too."""

    plain: ClassVar[bool] = True
    takes_local_step: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("global", "mean", "vote")
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: not is_sgd(config.optimizer),
            "Policy {policy.name} takes plain steps at each worker, but optimizer.name is {optimizer.name}. Set "
            "optimizer.name=sgd, or use local_sgd, where workers step with any optimizer.",
        ),
    )

    def step_pushes(self, members: int) -> float:
        """The scaling for own models: between one push a step and lock-step."""
        return math.sqrt(members)

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "workers' models never meet, and each learns from its own part of the data"

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
        super().fold(weights, out, gathered, optimizer, lr / max(1, gathered.members), slots, steps)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def pulls(self, clock: int) -> bool:
        return False

    def alpha(self, others: int | None, members: int) -> float:
        return 0.0
