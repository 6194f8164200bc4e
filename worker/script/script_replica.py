"""A model whose gradients a script of the user's own computes, and whose own steps the script's torch optimizer takes."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.optim import Optimizer

from paceline.core.errors import ConfigError
from paceline.core.optimizers.optimizer import OwnSteps
from paceline.core.policies.policy import Policy
from paceline.core.values import AS_SET, Manner, Position, Vector
from paceline.tasks.task import Task
from paceline.worker.script.draws import seed_all
from paceline.worker.script.loop_thread import LoopThread
from paceline.worker.script.torch_optimizers import parameters_of
from paceline.worker.training.device import seed_torch
from paceline.worker.training.model_and_gradient import Array, Replica
from paceline.worker.training.step_result import Step

Buffers = Literal["mean", "first", "own"]
"""Whose running statistics of BatchNorm and the like count: the mean of all workers', worker 0's, or each its own."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script's step leaves, besides the gradients in the model's parameters."""

    examples: int
    loss: float | None = None
    """None: not told."""
    finite: bool = True
    """False where a gradient scaler has found that it is not."""
    manner: Manner = AS_SET
    """What schedulers make of the described optimizer."""
    loaded: float = 0.0
    """Time that its mini-batches took to come out of the loader (seconds)."""
    searches: bool = False
    """As in Step."""
    position: Position | None = None
    """As in Step."""
    optimizer: Optimizer | None = None
    """The one that steps; None: the script has no other."""


class ScriptReplica(Replica):
    """The script's model. It stays on the script's device."""

    def __init__(
        self,
        name: str,
        model: nn.Module,
        optimizers: Sequence[Optimizer],
        trained: Collection[str] | None = None,
        buffers: Buffers = "mean",
        groups: Sequence[Collection[str]] = (),
        rate: float = 1.0,
    ) -> None:
        """`name`: of the script, for errors; `optimizers`: take own steps where the policy has any; `trained`: names of what
        they hold, frozen or not; `buffers`: whose running statistics count; `groups`: names of parameters that are stepped
        alike; `rate`: the one that the run's settings have."""
        self._optimizers = optimizers
        self._stepping = optimizers[0]
        """The one whose step it is."""
        self._buffers = buffers
        self._rate = rate
        self.place, self.workers = 0, 1
        """This worker's among all, and how many there are."""
        self.statistics_weight = 1.0
        """How much this worker's statistics count relative to the others'."""
        device = str(_device(name, model))
        super().__init__(_task(name), device, model=model, trained=trained, groups=groups, mixed=True)
        self._flat.detach()
        self._others = {id(one): self._flat.outside(parameters_of(one)) for one in optimizers}
        """Numbers of the parameters that each of them does not step."""
        self.thread = LoopThread()

    def begins(self) -> None:
        """The model is what it is now: the script may have loaded weights since `paceline.wrap`."""
        self._flat.follow()
        self._flat.begin_looks()
        self._flat.refresh()

    @property
    def untrained(self) -> list[Tensor]:
        """The model's parameters that are not trained: each worker has its own."""
        trained = {name for name, _ in self.shapes}
        return [parameter for name, parameter in self.model.named_parameters() if name not in trained]

    def shared_buffers(self) -> list[tuple[str, Tensor]]:
        return [] if self._buffers == "own" else statistics(self.model)

    def begins_policy(self, policy: Policy) -> None:
        """Sets the weight of this worker's statistics. Of those at place 0 alone, it is that of all pushes that make a mean;
        where models are averaged, statistics are, too."""
        if self._buffers != "first" or policy.pushes != "gradients":
            self.statistics_weight = 1.0
            return
        pushes = self.workers if policy.served and not policy.has_sum else policy.step_pushes(self.workers)
        self.statistics_weight = pushes if self.place == 0 else 0.0

    @contextmanager
    def kept_weights(self) -> Iterator[None]:
        """Restores the present weights after the block."""
        before = self.local.copy()
        yield
        self.load(before)

    def look(self) -> None:
        """Looks whether the script has moved or changed weights since the last step. ConfigError where a change would be
        lost, because servers hold the weights."""
        changed = self._flat.look()
        if changed is None or self.steps_itself:
            return
        if not any(getattr(layer, "max_norm", None) for layer in self.model.modules()):  # those change it by themselves
            raise ConfigError(
                f"The script has changed weights after optimizer.step(), those of '{self.shapes[changed][0]}'. The servers "
                "hold the weights, so that such a change is lost at the next step. Keep weights within bounds by "
                "torch.nn.utils.parametrize, load others before the first epoch, or train under a policy with own steps, "
                "like --policy local_sgd, under which the change is pushed."
            )

    def own_steps(self, asked: OwnSteps | None, decay: float = 1.0) -> OwnSteps | None:
        self.steps_itself = asked is not None
        return None if asked is None else TorchSteps(lambda: self._stepping, self._rate, decay, self._flat.follow)

    def forget_steps(self) -> None:
        for one in self._optimizers:
            one.state.clear()

    def clipped(self) -> None:
        if self.steps_itself:
            self._flat.spread()

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        """Waits for the script's; `seed` fixes what the script draws until then."""
        seed_all(seed, seed_torch)
        answer: Answer = self.thread.ask(True)
        self.loaded = answer.loaded
        self._stepping = answer.optimizer or self._stepping
        with self._flat.without(self._others[id(self._stepping)]):
            step = self.gathered(answer.loss, answer.examples)
            if self.statistics_weight != 1:
                step.gradient[self._flat.weights_end :] *= self.statistics_weight
        return replace(
            step,
            finite=step.finite and answer.finite,
            manner=replace(answer.manner, untouched=() if self.steps_itself else self._flat.untouched),
            searches=answer.searches,
            position=answer.position,
        )


def statistics(model: nn.Module) -> list[tuple[str, Tensor]]:
    """Names and values of the running statistics of its normalisation layers."""
    return [
        (f"{name}.{key}" if name else key, buffer)
        for name, layer in model.named_modules()
        if isinstance(layer, _NormBase)
        for key, buffer in layer.named_buffers(recurse=False)
        if buffer.dtype == torch.float32
    ]


def inner(model: nn.Module) -> nn.Module:
    """The model itself, inside of what torch.compile and nn.DataParallel have made of it."""
    while True:
        within = getattr(model, "_orig_mod", None)
        if within is None and isinstance(model, nn.DataParallel):
            within = model.module
        if within is None:
            return model
        model = within


def _device(name: str, model: nn.Module) -> torch.device:
    """The one that all trainable parameters are on."""
    devices = {parameter.device for parameter in model.parameters() if parameter.requires_grad}
    if len(devices) > 1:
        raise ConfigError(
            f"The model of {name} is on {', '.join(sorted(map(str, devices)))}; Paceline needs all of it on one device."
        )
    return next(iter(devices), torch.device("cpu"))


def _task(name: str) -> Task:
    """What stands where a task would: a script brings data, loss and metrics itself."""

    def absent(*_: object) -> NoReturn:
        raise ConfigError(f"{name} is a script, not a task: it has no data() and model().")

    return Task(
        name=name,
        data=absent,
        model=absent,
        prepare=absent,
        loss=absent,
        metrics=absent,
        settings={},
    )


class TorchSteps:
    """Replaces the optimizer that a worker steps its local model with. Belongs to the loop's thread, which goes on only
    while the script waits."""

    def __init__(self, optimizer: Callable[[], Optimizer], lr: float, decay: float, after: Callable[[], None]) -> None:
        """`optimizer`: gives the one whose step it is; `lr`: the rate that the script has described; `decay`: factor of a
        decay that the rate alone multiplies, as AdamW's; `after` brings what was stepped to the flat model."""
        self._optimizer = optimizer
        self._lr = lr
        self._decay = decay
        self._after = after

    def new_slots(self, length: int) -> list[Vector]:
        """None: torch's optimizer keeps its state itself."""
        return []

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
        """One step of the model that the script has, at its groups' rates times what the run makes of them."""
        optimizer = self._optimizer()
        groups, factor = optimizer.param_groups, lr / self._lr
        kept = ("lr", "weight_decay")
        before: list[dict[str, Any]] = [{key: group[key] for key in kept if key in group} for group in groups]
        for group in groups:
            group["lr"] = group["lr"] * factor
            if group.get("decoupled_weight_decay"):
                group["weight_decay"] = group["weight_decay"] * self._decay
        try:
            optimizer.step()
        finally:
            for group, own in zip(groups, before, strict=True):
                group.update(own)
        self._after()
