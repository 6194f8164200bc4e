"""A torch optimizer whose steps the servers take."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.worker.script.script_replica import inner
from paceline.worker.script.script_run import ScriptRun
from paceline.worker.script.torch_optimizers import described, left_out, rates


class WrappedOptimizer(Optimizer):
    """In the place of the script's optimizer, whose parameter groups it has: what a scheduler writes there is what the servers
    step with. `step()` pushes the gradients and pulls the weights, as the run's policy has it."""

    _step_supports_amp_scaling = True
    """A GradScaler hands its factor over and never leaves a step out: every worker makes as many."""

    def __init__(self, optimizer: Optimizer, run: ScriptRun, section: Mapping[str, Any]) -> None:
        """`section`: the optimizer as the servers know it."""
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state
        self._run = run
        self._section = section
        self.grad_scale: Tensor | None = None
        self.found_inf: Tensor | None = None

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One exchange with the servers; `closure`, where there is one, computes loss and gradients before it, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        finite = self.found_inf is None or not bool(self.found_inf)
        if self.grad_scale is not None and finite:
            self._unscale(self.grad_scale)
        self._run.step(None if loss is None else float(loss), finite, rates(self, self._section))
        return loss

    def _unscale(self, scale: Tensor) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.grad.div_(scale.to(parameter.grad.device))


def wrap(run: ScriptRun, optimizer: Optimizer, model: nn.Module, accumulate: int) -> Optimizer:
    """See paceline/script.py."""
    within = inner(model)
    section = described(optimizer, within)
    run.train(within, section, accumulate, left_out(optimizer, within))
    return WrappedOptimizer(optimizer, run, section)
