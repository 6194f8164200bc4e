"""DiLoCo: local SGD whose outer step has Nesterov momentum."""

from pydantic import Field

from paceline.core.optimizer import Optimizer
from paceline.core.optimizers.sgd import Sgd
from paceline.core.policies.local_sgd import LocalSgd


class Diloco(LocalSgd):
    """[Douillard et al. 2023]: with d the mean of (w - w_i), v <- m v + d, w <- w - outer_lr (d + m v). Its inner optimizer is
    the run's; the paper has AdamW and 500 steps."""

    outer_lr: float = Field(0.7, gt=0, description="Rate of the outer step.")
    outer_momentum: float = Field(0.9, gt=0, lt=1, description="m, momentum of the outer step (ratio).")

    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        return Sgd(lr=self.outer_lr, momentum=self.outer_momentum, weight_decay=0.0, nesterov=True)
