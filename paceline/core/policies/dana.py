"""DANA-Slim: each worker keeps its own momentum and pushes where its momentum is about to take it."""

from typing import ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.clocks import Clocks
from paceline.core.config import Config
from paceline.core.errors import ConfigError
from paceline.core.optimizer import Optimizer, build_optimizer
from paceline.core.optimizers.sgd import Sgd, plain_sgd
from paceline.core.policy import Own, Policy
from paceline.core.schedule import Scale
from paceline.core.values import Vector


class Dana(Policy):
    """[Hakimi et al. 2019]: v <- m v + g + wd w_i, push u = m v + g + wd w_i; the server folds w <- w - lr u at once, without
    momentum of its own."""

    lr_scale: ClassVar[Scale] = "half"
    shorthand: ClassVar[str | None] = "momentum"
    momentum: float = Field(0.9, gt=0, lt=1, description="m, kept by each worker (ratio).")
    _velocity: Vector | None = PrivateAttr(None)

    def check(self, config: Config) -> None:
        super().check(config)
        optimizer = build_optimizer(config.optimizer)
        if not isinstance(optimizer, Sgd) or optimizer.momentum:
            has = f" and optimizer.momentum {optimizer.momentum:g}" if isinstance(optimizer, Sgd) else ""
            raise ConfigError(
                f"Policy dana keeps the momentum at the workers (policy.momentum, {self.momentum:g}), its servers take plain "
                f"steps; but optimizer.name is {config.optimizer.name}{has}. Use optimizer.name=sgd and optimizer.momentum=0."
            )

    # server half
    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return plain_sgd(optimizer.lr)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    # worker half
    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        if gradient is None:
            return None
        if self._velocity is None:
            self._velocity = np.zeros_like(gradient)
        momentum, decay = np.float32(self.momentum), np.float32(getattr(own.optimizer, "weight_decay", 0.0))
        now = gradient + decay * own.local
        self._velocity *= momentum
        self._velocity += now
        now += momentum * self._velocity
        return now
