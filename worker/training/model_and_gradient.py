"""A worker's copy of the model: any torch module as one flat float32 vector, and one flat gradient per mini-batch."""

import itertools
import math
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from prometheus_client import CollectorRegistry
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from paceline.core.errors import ConfigError, DataError, is_out_of_memory
from paceline.core.optimizers.optimizer import OwnSteps
from paceline.core.policies.policy import Policy
from paceline.core.values import Vector
from paceline.tasks import defaults
from paceline.tasks.task import Task
from paceline.worker.training.device import (
    Precision,
    check_compiler,
    choose_device,
    seed_torch,
    send,
    tell_device,
)
from paceline.worker.training.explain_task_errors import explained
from paceline.worker.training.flat_model import FlatModel
from paceline.worker.training.large_inputs import LargeInputs
from paceline.worker.training.split_metrics import Measuring
from paceline.worker.training.step_result import Step

Array = npt.NDArray[Any]


class Replica:
    """The task's model with all trainable parameters in one vector (model order, tied ones once, frozen ones left out).
    `model`: one of the caller's own in its place; `trained`: names of the parameters, if not those that require a gradient;
    `groups`: names of parameters that lie side by side, behind all that are in none, so that each is stepped at once; `rank`
    picks the GPU of device 'auto'; the others are the config's keys. Not thread-safe. ConfigError: no such device or
    compiler, nothing to train, or parameters that are not float32."""

    def __init__(
        self,
        task: Task,
        device: str = "cpu",
        seed: int = 0,
        model: nn.Module | None = None,
        *,
        rank: int = 0,
        precision: str = "float32",
        accumulate: int = 1,
        compile: bool = False,
        trained: Collection[str] | None = None,
        groups: Sequence[Collection[str]] = (),
        mixed: bool = False,
    ) -> None:
        self.task = task
        self.device = choose_device(device, rank)
        self._precision = Precision(precision, self.device)
        self._parts = accumulate
        self.loaded = 0.0
        """Time that the last gradient's examples took to be loaded and prepared, inside of `gradient` (seconds)."""
        if model is None:
            torch.manual_seed(seed)
        self.steps_itself = False
        """Whether an optimizer of torch's steps the model, and not the servers or the run's own."""
        self.model = (task.model() if model is None else model).to(self.device)
        named = _trainable(task.name, self.model, trained, mixed)
        place = {name: number for number, group in enumerate(groups, 1) for name in group}
        named.sort(key=lambda one: place.get(one[0], 0))
        buffers = self.shared_buffers()
        self.shapes: tuple[tuple[str, tuple[int, ...]], ...] = tuple(
            (name, tuple(tensor.shape)) for name, tensor in (*named, *buffers)
        )
        self._flat = FlatModel([parameter for _, parameter in named], self.device, [buffer for _, buffer in buffers])
        self.length = self._flat.length
        self.weights_end = self._flat.weights_end
        """Where the weights end in a gradient, and a script's buffers begin."""
        self.local = self._flat.local
        if compile:
            check_compiler()
            self.model.compile()

    def tell_device(self, say: Callable[..., None], registry: CollectorRegistry) -> None:
        """Logs what it computes on, and keeps that as a metric."""
        tell_device(self.device, say, registry)

    def watch_inputs(self, names: Sequence[str]) -> LargeInputs:
        """Looks for columns of large numbers in the first mini-batch; `names`: of the columns, where they have any."""
        return LargeInputs(self.model, names)

    def shared_buffers(self) -> list[tuple[str, Tensor]]:
        """Names and buffers that go with the weights; a task's are estimated again where they are needed."""
        return []

    def begins_policy(self, policy: Policy) -> None:
        """This policy is in force from now on."""

    def own_steps(self, asked: OwnSteps | None, decay: float = 1.0) -> OwnSteps | None:
        """What this model's own steps are taken by, where the policy asks a worker for any. `decay`: the factor of the user's
        decay that is in `asked`."""
        return asked

    def forget_steps(self) -> None:
        """What took earlier own steps must not remember them; here `Training.begin` has the memory."""

    def clipped(self) -> None:
        """The last gradient was changed in main memory: an optimizer of torch's that steps by itself follows."""

    def keep_gradient(self) -> None:
        """The last gradient must outlive the next step: that one goes to other memory."""
        self._flat.keep_gradient()

    def leave_gradients(self) -> None:
        """An exchange that was abandoned may still send earlier gradients: later ones go to memory that it does not read."""
        self._flat.leave_gradients()

    def load(self, vector: Vector) -> None:
        """Copies the vector into the model's weights."""
        if vector.shape != (self.length,):
            raise ConfigError(
                f"Got weights of shape {vector.shape}, but the model of task '{self.task.name}' has {self.length:,} "
                "trainable parameters. All processes of a run must use the same task file."
            )
        np.copyto(self.local, vector)
        self.refresh()

    def refresh(self) -> None:
        """`local` was changed in place: the model follows. Costs nothing on the CPU."""
        self._flat.refresh()

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        """The gradient of the mean loss over a mini-batch at the present weights; `seed` fixes dropout,
        `rng` the augmentation. ConfigError where the task's loss can't be used."""
        seed_torch(seed)
        self.model.train()
        self._flat.gradient.values.zero_()
        loss = self.loaded = 0.0
        for start, end in _cuts(len(labels), min(self._parts, len(labels))):
            began = time.monotonic()
            inputs, targets = self._prepare(features[start:end], labels[start:end], rng)
            self.loaded += time.monotonic() - began
            try:
                loss += self._add(inputs, targets, (end - start) / len(labels))
            except (ConfigError, RuntimeError) as error:
                if is_out_of_memory(error):
                    raise
                raise explained(error, self.task, features[start:end], labels[start:end]) from error.__cause__
        if self._precision.scale != 1:
            self._flat.gradient.values.mul_(1 / self._precision.scale)
        step = self.gathered(loss, len(labels))
        if np.isfinite(loss):
            self._precision.note(step.finite)
        return step

    def _add(self, inputs: Tensor, targets: Tensor, share: float) -> float:
        """Adds the gradient of a part of the mini-batch; returns the loss. Both by its share of the examples."""
        self._flat.detach()  # or a zero_grad() in the loss would clear the other parts
        with self._precision.autocast():
            loss = self.task.loss(self.model, inputs, targets)
        if not loss.requires_grad:
            raise self._unreached()
        self._flat.attach()
        try:
            (loss.float() * (share * self._precision.scale)).backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            if is_out_of_memory(error):
                raise
            raise ConfigError(f"The backward pass of task '{self.task.name}' failed: {error}") from error
        return float(loss.detach()) * share

    def gathered(self, loss: float | None, examples: int) -> Step:
        """What a backward pass has left in the parameters' `.grad`; the loss is NaN where it is not known (None)."""
        self._flat.gather()
        size = self._flat.size()
        finite = (loss is None or bool(np.isfinite(loss))) and bool(np.isfinite(size))
        return Step(self._flat.to_host(), np.nan if loss is None else loss, examples, finite, size)

    def _unreached(self) -> ConfigError:
        return ConfigError(
            f"The loss of task '{self.task.name}' does not depend on trainable parameters. Compute it from "
            "model(inputs), without torch.no_grad(), .detach(), .item() or .numpy()."
        )

    def check_reach(self, features: Array, labels: Array) -> None:
        """ConfigError where the loss leads to none of the parameters."""
        self._flat.detach()
        parameters = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        loss = self.task.loss(self.model, *self._prepare(features, labels))
        found = torch.autograd.grad(loss, parameters, allow_unused=True) if loss.requires_grad else ()
        self._flat.attach()
        if all(gradient is None for gradient in found):
            raise self._unreached()

    @property
    def is_scaled(self) -> bool:
        """Whether a factor on the loss is still being found, so that the gradient may not be finite (fp16)."""
        return self._precision.scale != 1

    def _prepare(self, features: Array, labels: Array, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        inputs, targets = self.task.prepare(features, labels, rng)
        return send(inputs, self.device), send(targets, self.device)

    def _batches(self, features: Array, labels: Array, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Evaluation batches whose sizes differ by one at most, so that none is too small for BatchNorm."""
        if len(labels) == 0:
            raise DataError(
                f"There are no examples to score task '{self.task.name}' on. Give the split a larger share."
            )
        for start, end in _cuts(len(labels), -(-len(labels) // batch)):
            yield self._prepare(features[start:end], labels[start:end])

    @torch.no_grad()
    def recalibrate(self, features: Array, labels: Array, batch: int = 512) -> None:
        """Estimates BatchNorm statistics again, as the mean over these examples without augmentation."""
        self.model.train()
        # not swa_utils.update_bn: it resets layers that the model's own train() keeps in eval mode (frozen backbones)
        norms = (module for module in self.model.modules() if isinstance(module, _BatchNorm))
        layers = [layer for layer in norms if layer.training and layer.track_running_stats]
        if not layers:
            return
        torch.manual_seed(0)
        momenta = [layer.momentum for layer in layers]
        for layer in layers:
            layer.reset_running_stats()
            layer.momentum = None
        for inputs, _ in self._batches(features, labels, batch):
            self.model(inputs)
        for layer, momentum in zip(layers, momenta, strict=True):
            layer.momentum = momentum

    @torch.no_grad()
    def score(self, features: Array, labels: Array, batch: int = 512) -> dict[str, float]:
        """In evaluation mode: the loss, as the mean over the examples, and the task's metrics of all of them."""
        self.model.eval()
        total, count, measuring = 0.0, 0, Measuring(self.task)
        has_own = not defaults.is_default(self.task.loss)
        for inputs, targets in self._batches(features, labels, batch):
            loss, outputs = self._evaluate(inputs, targets)
            weight = len(inputs) if has_own else defaults.counted(targets)
            total += float(loss) * weight if weight else 0.0
            count += weight
            measuring.add(outputs, targets)
        return {"loss": total / count if count else math.nan, **measuring.metrics()}

    @torch.no_grad()
    def outputs(self, features: Array, labels: Array, batch: int = 512) -> Iterator[tuple[Any, Tensor]]:
        """The model's outputs in evaluation mode and the labels, mini-batch by mini-batch."""
        self.model.eval()
        for inputs, targets in self._batches(features, labels, batch):
            yield self.model(inputs), targets

    def _evaluate(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Any]:
        """The loss and the model's outputs; where the loss itself calls model(inputs), that pass serves both."""
        seen: list[Any] = []

        def note(_: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> None:
            if len(arguments) == 1 and arguments[0] is inputs:
                seen.append(outputs)

        hook = self.model.register_forward_hook(note)
        try:
            loss = self.task.loss(self.model, inputs, targets)
        finally:
            hook.remove()
        return loss, seen[0] if seen else self.model(inputs)

    def state(self) -> dict[str, Tensor]:
        """Parameters (frozen ones too, tied ones under each name) and buffers as CPU tensors in new memory."""
        return {name: value.detach().cpu().contiguous().clone() for name, value in self.check_state().items()}

    def check_state(self) -> dict[str, Tensor]:
        """The model's own state, all tensors; ConfigError where it holds what can't be saved."""
        found: dict[str, Tensor] = self.model.state_dict()
        odd = [name for name, value in found.items() if not isinstance(value, Tensor)]
        if odd:
            raise ConfigError(
                f"The model's state {odd[0]!r} is not a tensor and can't be saved; remove its get_extra_state()."
            )
        return found


def use_threads(threads: int) -> None:
    """CPU threads of every torch operation in this process: cores // local workers; 1 for the same bits everywhere."""
    if threads < 1:
        raise ConfigError(f"The number of threads is {threads}; expected 1 or more.")
    torch.set_num_threads(threads)


def _trainable(
    task: str, model: nn.Module, trained: Collection[str] | None, mixed: bool
) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters in model order, those of `trained`, or that require a gradient; named_parameters lists tied ones
    once. `mixed`: of any floating precision."""
    found = model.named_parameters()
    named = [(name, one) for name, one in found if (one.requires_grad if trained is None else name in trained)]
    if not named:
        raise ConfigError(
            f"The model of task '{task}' has no trainable parameters; at least one must require a gradient."
        )
    for name, parameter in named:
        if is_lazy(parameter):
            raise ConfigError(
                f"'{name}' of task '{task}' is lazy, so its size is unknown; give all sizes in model(), like "
                "nn.Linear(64, 10) instead of nn.LazyLinear(10)."
            )
        if parameter.dtype != torch.float32 and not (mixed and parameter.is_floating_point()):
            raise ConfigError(
                f"'{name}' of task '{task}' is {parameter.dtype}; trainable parameters must be torch.float32: leave "
                "out .double() and .half() in model(), or end it with .float()."
            )
    return named


def _cuts(examples: int, parts: int) -> Iterator[tuple[int, int]]:
    """First and last + 1 of nearly equal parts."""
    return itertools.pairwise(np.linspace(0, examples, parts + 1).astype(int).tolist())
