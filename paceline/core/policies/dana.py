"""DANA-Slim: each worker keeps its own momentum and pushes where its momentum is about to take it."""

from typing import ClassVar

import numpy as np
from pydantic import Field, PrivateAttr

from paceline.core.clocks import Clocks
from paceline.core.config import Config
from paceline.core.errors import ConfigError
from paceline.core.optimizer import Optimizer
from paceline.core.optimizers.sgd import plain_sgd
from paceline.core.policy import Own, Policy
from paceline.core.values import Vector


class Dana(Policy):
    """[Hakimi et al. 2019]: v <- m v + g + wd w_i, push u = m v + g + wd w_i; the server folds w <- w - lr u at once, without
    momentum of its own."""

    shorthand: ClassVar[str | None] = "momentum"
    momentum: float | None = Field(
        None, gt=0, lt=1, description="m, kept by each worker (ratio); default: optimizer.momentum."
    )
    _velocity: Vector | None = PrivateAttr(None)

    def check(self, config: Config) -> None:
        super().check(config)
        if config.optimizer.name != "sgd":
            raise ConfigError(
                f"Policy dana is made for SGD with momentum, but optimizer.name is {config.optimizer.name}. Set "
                "optimizer.name=sgd, or take another policy, like asp."
            )
        if config.codec.momentum:
            raise ConfigError(
                f"Policy dana keeps a momentum at each worker, and so does codec.momentum ({config.codec.momentum:g}). Leave "
                "codec.momentum out, or take another policy."
            )

    def overlap(self, members: int) -> float:
        """Each worker's momentum is of its own steps."""
        return 1.0

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
        momentum, decay = (
            np.float32(self._momentum(own.optimizer)),
            np.float32(getattr(own.optimizer, "weight_decay", 0.0)),
        )
        now = gradient + decay * own.local
        self._velocity *= momentum
        self._velocity += now
        now += momentum * self._velocity
        return now

    def _momentum(self, optimizer: Optimizer) -> float:
        """m; that of the run's optimizer where the policy has none of its own."""
        return getattr(optimizer, "momentum", 0.0) if self.momentum is None else self.momentum
