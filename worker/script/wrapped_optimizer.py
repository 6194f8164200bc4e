"""A torch optimizer whose steps the servers take."""

import ast
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.core.errors import ConfigError
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options
from paceline.core.values import AS_SET, Manner
from paceline.worker.script.schedulers import Schedulers
from paceline.worker.script.script_replica import Buffers, ScriptReplica, inner, statistics
from paceline.worker.script.script_run import ScriptRun
from paceline.worker.script.tell import tell
from paceline.worker.script.torch_optimizers import described, held, manner, parameters_of, refuse_closures

_SEARCH = 20
"""Steps that a GradScaler may take to find its factor: halving 65,536 so often leaves less than 1."""


class WrappedOptimizer(Optimizer):
    """Replaces the script's optimizer, whose parameter groups it has: the servers step with what a scheduler writes there.
    `step()` pushes the gradients and pulls the weights, as the run's policy has it."""

    _step_supports_amp_scaling = True
    """A GradScaler hands its factor over and never leaves a step out: every worker makes as many."""

    def __init__(self, optimizer: Optimizer, run: ScriptRun) -> None:
        super().__init__(optimizer.param_groups, optimizer.defaults)
        self._own = optimizer
        self.param_groups = optimizer.param_groups
        self.state = optimizer.state
        self._run = run
        self._has_stepped = False
        self._sought = 0
        """Steps from the first one on that a GradScaler has left out."""

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One exchange with the servers; `closure`, where there is one, computes loss and gradients before it, as in torch."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._run.look()
        if not self._has_stepped:
            self._check_gradients()
            self._say_sparse()
            if large := self._run.large_inputs:
                tell(large)
        # a GradScaler's, during its step(), which then deletes them
        scale: Tensor | None = getattr(self, "grad_scale", None)
        found_inf: Tensor | None = getattr(self, "found_inf", None)
        finite = found_inf is None or not bool(found_inf)
        if scale is not None and finite:
            self._unscale(scale)
        self._sought = _SEARCH if finite else self._sought
        searches = not finite and self._searches()
        self._note_state()
        for schedulers in self._run.schedulers:
            schedulers.note(self._run.position)
        self._run.step(None if loss is None else float(loss), finite, self._manner(), searches, self._own)
        return loss

    def leave_out(self) -> None:
        """A GradScaler has left a step out; every worker makes as many."""
        self._run.step(finite=False, searches=self._searches(), optimizer=self._own)

    def _searches(self) -> bool:
        """A GradScaler leaves a step out; whether it still looks for its factor: until its first step that is not left out, and
        for no longer than some steps."""
        self._sought += 1
        return self._sought < _SEARCH

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch's. The script's own optimizer takes it, which steps where workers do, and which schedulers may hold."""
        self._own.load_state_dict(state_dict)
        self.param_groups = self._own.param_groups
        self.state = self._own.state

    def _check_gradients(self) -> None:
        """ConfigError where nothing would ever be learned: before the first step no parameter has a gradient."""
        if not any(one.grad is not None for one in parameters_of(self)):
            raise ConfigError(
                "optimizer.step() came before any parameter had a gradient. Call loss.backward() before it, and "
                "optimizer.zero_grad() after it or before loss.backward()."
            )

    def _say_sparse(self) -> None:
        """Says once what sparse gradients cost."""
        every = parameters_of(self)
        if count := sum(one.numel() for one in every if one.grad is not None and one.grad.is_sparse):
            tell(
                f"sparse gradients are sent whole: {count:,} values in each push, not only the rows that a mini-batch touches. "
                "--set codec.push=topk sends the largest ones."
            )

    def _note_state(self) -> None:
        """Says once what a checkpoint has brought in vain."""
        if not self._has_stepped and self.state and not self._run.steps_itself:
            tell(
                f"the optimizer brings the state of {len(self.state)} parameters, perhaps from a checkpoint. The servers step, "
                "and begin with empty state; a run that goes on (--run NAME) keeps its state."
            )
        self._has_stepped = True

    def _manner(self) -> Manner:
        """What schedulers make of what is described; where workers take the steps, torch's optimizer knows it. ConfigError
        where a momentum moves, and the codec keeps it."""
        found = AS_SET if self._run.steps_itself else manner(*self._run.described)
        if any(option.name == "momentum" for option in found.options) and self._run.settings.codec.momentum:
            raise ConfigError(
                "A scheduler moves the optimizer's momentum, but with codec.momentum workers keep another one, which stays "
                "as it is. Pass cycle_momentum=False to the scheduler, or leave out codec.momentum."
            )
        return found

    def _unscale(self, scale: Tensor) -> None:
        if found := [parameter.grad for parameter in parameters_of(self) if parameter.grad is not None]:
            torch._foreach_div_(found, scale.to(found[0].device))


def wrap(
    run: ScriptRun,
    optimizer: Optimizer,
    model: nn.Module,
    accumulate: int,
    buffers: Buffers,
    clip_norm: float | None = None,
    schedulers: Sequence[Any] = (),
) -> Optimizer:
    """See paceline/api/script.py."""
    if not isinstance(optimizer, Optimizer) or not isinstance(model, nn.Module):
        raise ConfigError(
            f"paceline.wrap got {type(optimizer).__name__} and {type(model).__name__}; expected a torch optimizer "
            "and the model whose parameters it has: paceline.wrap(torch.optim.SGD(model.parameters(), lr=0.1), "
            "model)."
        )
    refuse_closures(optimizer)
    if buffers not in get_args(Buffers):
        raise ConfigError(f"paceline.wrap: buffers is {buffers!r}; expected one of {', '.join(get_args(Buffers))}.")
    within, policy = inner(model), build_policy(run.settings.policy)
    if buffers == "first" and statistics(within) and (policy.pushes != "gradients" or policy.most_steps > 1):
        raise ConfigError(
            f"paceline.wrap: buffers is 'first', but workers of policy {run.settings.policy.name} push how their models have "
            "moved, and of that the statistics are averaged like the weights. Pass buffers='mean', or 'own'."
        )
    optimizers = [*run.described[0], optimizer]
    together = joined([*run.models, within])
    section = _section(run, optimizers, together)
    groups = [group["parameters"] for group in section.get("groups", ())]
    replica = ScriptReplica(
        run.script, together, optimizers, held(optimizers, together), buffers, groups, section["lr"]
    )
    tell_of_frozen(optimizer)
    if averaged := [name for name, _ in replica.shared_buffers()]:
        section["averaged"] = averaged
    run.train(replica, section, accumulate, clip_norm)
    if within not in run.models:
        _say_rounded(within)
    run.described, run.models = (optimizers, section), [*run.models, within]
    if policy.steps_on_mean and run.rank == 0:
        tell_of_clipping(run, clip_norm)
    setattr(optimizer, "_opt_called", True)  # noqa: B010  a scheduler that was made before watches it; the wrapped one steps
    wrapped = WrappedOptimizer(optimizer, run)
    run.schedulers.append(Schedulers(wrapped, run.notes(len(optimizers)), run.epoch_of, schedulers))
    return wrapped


def joined(models: Sequence[nn.Module]) -> nn.Module:
    """What a script trains, as one module: several are parts of it, named by their classes."""
    parts = {id(model): model for model in models}
    within = {id(part) for model in parts.values() for part in model.modules() if part is not model}
    found = [model for number, model in parts.items() if number not in within]
    names = [type(model).__name__ for model in found]
    numbered = (f"{name}{number}" if names.count(name) > 1 else name for number, name in enumerate(names))
    return found[0] if len(found) == 1 else nn.ModuleDict(dict(zip(numbered, found, strict=True)))


def tell_of_frozen(optimizer: Optimizer) -> None:
    """Says what frozen parameters cost that the optimizer holds."""
    every = parameters_of(optimizer)
    frozen = sum(parameter.numel() for parameter in every if not parameter.requires_grad)
    if frozen:
        tell(
            f"{frozen:,} of the {sum(parameter.numel() for parameter in every):,} weights that the optimizer holds are frozen "
            "now; they are sent too, so that you can unfreeze them. If you won't, give the optimizer the others alone: "
            "[p for p in model.parameters() if p.requires_grad]."
        )


def tell_of_clipping(run: ScriptRun, norm: float | None) -> None:
    """Says where the norm of a mean gradient is not what the script may expect."""
    settings = run.settings
    if norm is not None and settings.servers > 1:
        tell(
            "clip_norm limits the mean gradient of all workers, so server 0 holds the whole model, and the others nothing."
        )
    line = _line_of("clip_grad_norm_", Path(settings.task)) if norm is None and settings.workers > 1 else None
    if line is not None:
        tell(
            f"{run.script}, line {line}: clip_grad_norm_ clips each worker's gradient, not the mean of all that a step is on. "
            "To clip as in one process, leave it out, and pass clip_norm to paceline.wrap."
        )


def _line_of(name: str, script: Path) -> int | None:
    """The first line of the script that calls a function of this name."""
    tree = ast.parse(script.read_bytes()) if script.is_file() else ast.Module([], [])
    called = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
    return min(
        (one.lineno for one in called if name in (getattr(one, "attr", ""), getattr(one, "id", ""))), default=None
    )


def _say_rounded(model: nn.Module) -> None:
    """Says once what becomes of a precision that servers don't have."""
    double = (one.numel() for one in model.parameters() if one.requires_grad and one.dtype == torch.float64)
    if count := sum(double):
        tell(
            f"{count:,} values of the model are float64, but servers keep and step them as float32: each pull brings about 7 "
            "digits. model.float() makes workers compute so, too."
        )


def _section(run: ScriptRun, optimizers: Sequence[Optimizer], model: nn.Module) -> dict[str, Any]:
    """The optimizers in the run's words. One that the servers have not goes where workers take the steps; there its rate
    alone is known. ConfigError where servers would have to step so."""
    try:
        return described(optimizers, model)
    except ConfigError:
        policy = build_policy(run.settings.policy)
        first = optimizers[0].param_groups[0]
        rate = float(first.get("initial_lr", first.get("lr", 1.0))) or 1.0
        plain = {"name": "sgd", "lr": rate, "momentum": 0.0, "weight_decay": 0.0}
        if policy.pushes == "gradients" or policy.worker_optimizer(build_optimizer(Options(**plain))) is None:
            raise
        return plain
