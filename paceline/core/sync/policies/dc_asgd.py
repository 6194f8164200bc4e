"""Delay-compensated ASGD: a late gradient is corrected by how far the weights have moved since."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.extension import SettingsRule
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.clocks import Clocks
from paceline.core.sync.policy import Gathered, Policy
from paceline.core.values import Push, Vector


class DcAsgd(Policy):
    """[Zheng et al. 2017]: g' = g + lambda_t g g (w - w_bak) with w_bak, the worker's last weights, which every slice
    keeps. Adaptive form: ms <- m ms + (1 - m) g g, lambda_t = lambda / sqrt(ms + 1e-7); `m` 0 is the constant
    one (paper: lambda 0.04). A worker's first push after a join, or after a server's restart, is not corrected; a restarted
    server begins its mean square from scratch."""

    shorthand: ClassVar[str | None] = "compensation"
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: bool(config.optimizer.options.get("averaged")),
            "The model has running statistics (BatchNorm), which policy {policy.name} would correct like gradients. Take "
            "another policy, like ssp, or in a script pass buffers='own' to paceline.wrap, which leaves each worker its own.",
        ),
    )
    compensation: float = Field(2.0, ge=0, description="lambda; 2 for the adaptive form, 0.04 for the constant one.")
    m: float = Field(0.95, ge=0, lt=1, description="Decay of the mean square (ratio); 0: constant lambda.")
    _backups: dict[str, Vector] = PrivateAttr(default_factory=dict)
    _square: Vector | None = PrivateAttr(None)

    def server_arrays(self, workers: int) -> int:
        return workers + 2

    def observe(self, push: Push, clocks: Clocks) -> None:
        if clocks.entry(push.worker).others is None:  # it has pulled its weights, so no reply brought them
            self._backups.pop(push.worker, None)

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

        if self._square is None:
            self._square = np.zeros_like(weights)
        backup = self._backups.get(gathered.worker, weights)
        kernels.compensate(gathered.total, weights, backup, self._square, self.compensation, self.m)
        optimizer.step(weights, out, gathered.total, gathered.scale, lr, slots, steps)

    def sent(self, worker: str, weights: Vector, clocks: Clocks) -> None:
        for gone in self._backups.keys() - clocks.members:
            del self._backups[gone]
        if worker in clocks.members:
            np.copyto(self._backups.setdefault(worker, np.empty_like(weights)), weights)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
