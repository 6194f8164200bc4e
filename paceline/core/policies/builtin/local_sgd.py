"""Local SGD: in each round every worker takes several local steps, then all take the mean of their models."""

import math
from collections.abc import Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.builtin.sgd import plain_sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.builtin.bsp import Bsp
from paceline.core.policies.policy import Gathered, Own, Policy, policies_that
from paceline.core.settings.codec import Pushes
from paceline.core.values import Vector


class LocalSgd(Bsp):
    """[Stich 2019]: H steps with the run's optimizer, then w <- w - mean_i (w - w_i), weighted by examples. `dynamic` [DyLU,
    Liu et al. 2024]: H_i = max(1, round(H * speed_i / fastest)), so that no worker waits long."""

    keeps_start: ClassVar[bool] = True
    pushes: ClassVar[Pushes] = "differences"
    averages: ClassVar[bool] = True
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "version"
    sparse: ClassVar[bool] = False  # workers of linear models would push after each mini-batch, as in plain lock-step
    shorthand: ClassVar[str | None] = "steps"
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: config.schedule.lr_scale == "adascale",
            "schedule.lr_scale: adascale measures gradients, but {policy.name} averages models, with its own rate. Use "
            "{instead}, or another lr_scale.",
            instead=lambda: policies_that(_averages_gradients),
        ),
    )
    steps: int = Field(8, ge=1, description="H, own steps in a round (steps).")
    dynamic: bool = Field(False, description="Fewer steps for slower workers.")

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
        """The workers use the schedule's rate; this step has its own."""
        optimizer.step(weights, out, gathered.total, gathered.scale, optimizer.lr, slots, steps)

    # worker half
    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        return optimizer

    @property
    def most_steps(self) -> int:
        return self.steps

    def local_steps(self, speed: float) -> int:
        return max(1, math.floor(self.steps * speed + 0.5)) if self.dynamic else self.steps

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        assert own.start is not None
        return None if gradient is None else np.subtract(own.start, own.local)


def _averages_gradients(kind: type[Policy]) -> bool:
    return (kind.rounds or kind.gathers) and not kind.averages
