"""Stochastic gradient descent, with momentum, Nesterov's if wanted."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from paceline.core.extension import SettingsRule
from paceline.core.optimizers.optimizer import Decay, Optimizer, Share, build_optimizer
from paceline.core.settings.config import Options
from paceline.core.values import Vector


class Sgd(Optimizer):
    """SGD with momentum (no dampening) and weight decay, the update of torch.optim.SGD: g <- g + weight_decay * w;
    m <- momentum * m + g;  w <- w - lr * m, or with nesterov w <- w - lr * (g + momentum * m)."""

    adaptive: ClassVar[bool] = False
    usual_rate: ClassVar[float] = 0.1
    momentum: Share = Field(0.9, description="Share of the last move that goes on (ratio); 0 keeps no slot.")
    weight_decay: Decay = 1e-4
    nesterov: bool = Field(False, description="Step from where the momentum leads to; needs momentum above 0.")
    rules: ClassVar[tuple[SettingsRule, ...]] = (
        SettingsRule(
            lambda sgd, config: sgd.nesterov and not sgd.momentum,
            "optimizer.nesterov: Nesterov's step needs momentum, and momentum is 0. Set it above 0, or leave nesterov out.",
        ),
    )

    @property
    def slots(self) -> int:
        return 1 if self.momentum else 0

    @property
    def has_worker_half(self) -> bool:
        return bool(self.momentum) and super().has_worker_half

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        """DANA-Slim's [Hakimi et al. 2019]: v <- m v + g + wd w; g <- g + wd w + m v."""
        from paceline.core import kernels  # here: a mistake in the config must show without waiting for numba

        if slots:
            kernels.look_ahead(gradient, slots[0], weights, self.momentum, self.weight_decay)
        else:
            kernels.add_scaled(gradient, weights, self.weight_decay)

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
        # imported here: a mistake in the config must show without waiting for numba
        from paceline.core.optimizers import optimizer_loops as loops

        if slots:
            loops.sgd(weights, out, gradient, slots[0], scale, lr, self.momentum, self.weight_decay, self.nesterov)
        else:
            loops.sgd_without_momentum(weights, out, gradient, scale, lr, self.weight_decay)


def is_sgd(options: Options) -> bool:
    """Whether the config names SGD, or an optimizer that is made from it and steps as it does."""
    return steps_as_sgd(build_optimizer(options))


def steps_as_sgd(optimizer: Optimizer) -> bool:
    """Whether its step is SGD's own: one that is only made from SGD may have another, which must not be left out."""
    return isinstance(optimizer, Sgd) and type(optimizer).step is Sgd.step


def plain_sgd(lr: float) -> Sgd:
    """SGD without momentum and decay: what a policy folds or steps with where it only wants lr * gradient taken off."""
    return Sgd(lr=lr, momentum=0.0, weight_decay=0.0)


def along_directions(optimizer: Optimizer) -> Optimizer:
    """Plain steps along what workers push with their half of the optimizer (`Optimizer.look_ahead`)."""
    return optimizer.each(lambda one: Sgd(lr=one.lr, momentum=0.0, weight_decay=one.server_decay))


def plainly(optimizer: Optimizer) -> Optimizer:
    """Plain steps at the optimizer's rates."""
    return optimizer.each(lambda one: plain_sgd(one.lr))
