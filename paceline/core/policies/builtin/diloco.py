"""DiLoCo: local SGD whose outer step has Nesterov momentum."""

from pydantic import Field

from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.builtin.local_sgd import LocalSgd


class Diloco(LocalSgd):
    """[Douillard et al. 2023]: with d the mean of (w - w_i), v <- m v + d, w <- w - outer_lr (d + m v). Its inner optimizer is
    the run's; the paper has AdamW and 500 steps."""

    outer_lr: float | None = Field(
        None,
        gt=0,
        description="Rate of the outer step; default: 1 - outer_momentum, so that a move counts once in the end "
        "(the paper: .7).",
    )
    outer_momentum: float = Field(0.9, gt=0, lt=1, description="m, momentum of the outer step (ratio).")

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "its outer steps are few, so a short run may lag behind"

    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        lr = round(1 - self.outer_momentum, 12) if self.outer_lr is None else self.outer_lr
        return Sgd(lr=lr, momentum=self.outer_momentum, weight_decay=0.0, nesterov=True)
