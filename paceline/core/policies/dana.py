"""DANA-Slim: each worker keeps its own momentum and pushes where its momentum is about to take it."""

from typing import ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.clocks import Clocks
from paceline.core.config import Config
from paceline.core.errors import ConfigError
from paceline.core.optimizer import Optimizer
from paceline.core.optimizers.sgd import check_plain, plain_sgd
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
        check_plain(config.optimizer, f"policy dana ({self.momentum:g})")
        if config.codec.momentum:
            raise ConfigError(
                f"Policy dana keeps a momentum at each worker (policy.momentum, {self.momentum:g}), and so does codec.momentum "
                f"({config.codec.momentum:g}). Leave codec.momentum out, or take another policy."
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
