"""FTRL-Proximal: each weight has its own rate, and L1 makes weights exactly 0 that the data do not need."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.settings.config import Config
from paceline.core.values import Vector

Strength = Annotated[float, Field(ge=0, allow_inf_nan=False)]


def _has_schedule(config: Config) -> bool:
    schedule = config.schedule
    return schedule.name != "constant" or bool(schedule.warmup_epochs) or schedule.lr_scale not in ("auto", "none")


class Ftrl(Optimizer):
    """McMahan et al. 2013, Algorithm 1, for the coordinates of a sparse gradient g, with alpha = lr:
    sigma = (sqrt(n + g^2) - sqrt(n)) / alpha;  z <- z + g - sigma w;  n <- n + g^2;
    w <- 0 if |z| <= l1, otherwise -(z - sign(z) l1) / ((beta + sqrt(n)) / alpha + l2)."""

    sparse: ClassVar[bool] = True
    beta: float = Field(
        1.0, gt=0, allow_inf_nan=False, description="Makes the first steps of a weight shorter; the paper's is 1."
    )
    l1: Strength = Field(
        0.0, description="Strength of L1, against the summed losses of all epochs; more makes more weights 0."
    )
    l2: Strength = Field(0.0, description="Strength of L2, half of this times w^2, against the same sum.")
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda ftrl, config: config.updates != "sparse",
            "optimizer ftrl is for linear models (updates: sparse), and updates are {updates}. Take another one, like "
            "optimizer.name=adagrad, or a sparse task like svm.",
        ),
        SettingsRule(
            lambda ftrl, config: config.updates == "sparse" and config.svm.steps != "plain",
            "svm.steps is {svm.steps}, but with optimizer ftrl workers push gradients and take no steps. Set "
            "svm.steps=plain.",
        ),
        SettingsRule(
            lambda ftrl, config: config.updates == "sparse" and _has_schedule(config),
            "schedule is {schedule.name}, warmup_epochs {schedule.warmup_epochs:g}, lr_scale {schedule.lr_scale}, but with "
            "optimizer ftrl each weight's rate falls by itself. Set schedule.name=constant and schedule.lr_scale=none, and "
            "leave out the warm-up.",
        ),
    )

    @property
    def slots(self) -> int:
        return 2

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
        z, n = slots
        g = np.float32(scale) * gradient
        root = np.sqrt(n)
        n += g * g
        grown = np.sqrt(n)
        z += g - (grown - root) / np.float32(lr) * weights
        pull = np.sign(z) * np.maximum(np.abs(z) - np.float32(self.l1), np.float32(0))
        divisor = (np.float32(self.beta) + grown) / np.float32(lr) + np.float32(self.l2)
        np.divide(-pull, divisor, out=out)
