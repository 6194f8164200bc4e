"""DANA-Slim: each worker keeps its own momentum and pushes where its momentum is about to lead."""

from typing import ClassVar

from pydantic import Field, PrivateAttr

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.builtin.sgd import along_directions, is_sgd
from paceline.core.optimizers.optimizer import Optimizer, build_optimizer
from paceline.core.optimizers.worker_half import WorkerHalf
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Own, Policy
from paceline.core.values import Vector


class Dana(Policy):
    """[Hakimi et al. 2019]: v <- m v + g + wd w_i, push u = m v + g + wd w_i (`Optimizer.look_ahead`); the server folds
    w <- w - lr u at once, without its own momentum. Of Adam and the like each worker keeps the moments. ASP does the same,
    unless schedule.lr_scale says to use rate and momentum unscaled."""

    shorthand: ClassVar[str | None] = "momentum"
    worker_momentum: ClassVar[bool] = False
    own_half: ClassVar[bool] = True
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda policy, config: (
                not is_sgd(config.optimizer)
                and (policy.momentum is not None or not build_optimizer(config.optimizer).has_worker_half)
            ),
            "Policy {policy.name} has nothing that its workers could keep of optimizer.name {optimizer.name}, and "
            "policy.momentum is for sgd alone. Leave that out, and take sgd, adam, adamw, rmsprop or adagrad, or another "
            "policy, like asp.",
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
    _half: WorkerHalf | None = PrivateAttr(None)

    # server half
    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return along_directions(optimizer)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    # worker half
    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        if gradient is None:
            return None
        asked = own.optimizer
        if self.momentum is not None:
            asked = asked.each(lambda one: one.model_copy(update={"momentum": self.momentum}))
        self._half = WorkerHalf(asked).after(self._half)
        ahead = gradient.copy()
        self._half.look_ahead(ahead, own.local, own.grouping, own.manner.untouched)
        return ahead
