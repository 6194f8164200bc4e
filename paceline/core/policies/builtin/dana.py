"""DANA-Slim: each worker keeps its own momentum and pushes where its momentum is about to lead."""

from typing import ClassVar

from pydantic import Field, PrivateAttr

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.builtin.sgd import is_sgd, plainly
from paceline.core.optimizers.groups import Grouped
from paceline.core.optimizers.momentum import WorkerMomentum
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Own, Policy
from paceline.core.values import Vector


class Dana(Policy):
    """[Hakimi et al. 2019]: v <- m v + g + wd w_i, push u = m v + g + wd w_i (`WorkerMomentum`); the server folds
    w <- w - lr u at once, without its own momentum. ASP with a momentum does the same, unless
    schedule.lr_scale says to use rate and momentum unscaled."""

    shorthand: ClassVar[str | None] = "momentum"
    worker_momentum: ClassVar[bool] = False  # the policy brings its own
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: not is_sgd(config.optimizer),
            "Policy {policy.name} is made for SGD with momentum, but optimizer.name is {optimizer.name}. Set "
            "optimizer.name=sgd, or take another policy, like asp.",
        ),
        SettingsRule(
            lambda policy, config: bool(config.codec.momentum),
            "Policy {policy.name} keeps a momentum at each worker, and so does codec.momentum ({codec.momentum:g}). Leave "
            "codec.momentum out, or take another policy.",
        ),
    )
    momentum: float | None = Field(
        None, gt=0, lt=1, description="m, kept by each worker (ratio); default: optimizer.momentum."
    )
    _kept: WorkerMomentum | None = PrivateAttr(None)

    # server half
    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return plainly(optimizer)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    # worker half
    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        if gradient is None:
            return None
        self._kept = self._momentum(own.optimizer).after(self._kept)
        ahead = gradient.copy()
        self._kept.look_ahead(ahead, own.local, own.touched)
        return ahead

    def _momentum(self, optimizer: Optimizer) -> WorkerMomentum:
        """The momentum: one for each group, if there are groups."""
        if self.momentum is not None:
            optimizer = optimizer.each(lambda one: one.model_copy(update={"momentum": self.momentum}))
        if isinstance(optimizer, Grouped):
            return optimizer.momenta()
        return optimizer.worker_momentum() or WorkerMomentum(0.0, getattr(optimizer, "weight_decay", 0.0))
