"""A worker's copy of the model: any torch module as one flat float32 vector, and one flat gradient per mini-batch."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy

from paceline.core.errors import ConfigError, DataError
from paceline.core.values import Vector
from paceline.tasks.task import Task

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """What one mini-batch gave."""

    gradient: Vector
    """In the order of `Replica.shapes`; overwritten by the next step."""
    loss: float
    examples: int
    finite: bool
    """False where the loss or any element of the gradient is not finite: push an empty update instead (protocol 6)."""


class Replica:
    """The task's model with all trainable parameters in one vector (model order, tied ones once, frozen ones left out).
    Not thread-safe. ConfigError: no such device, nothing to train, or parameters that are not float32."""

    def __init__(self, task: Task, device: str = "cpu", seed: int = 0) -> None:
        self.task = task
        self.device = _device(device)
        torch.manual_seed(seed)
        self.model = task.model().to(self.device)
        named = _trainable(task.name, self.model)
        self.shapes: tuple[tuple[str, tuple[int, ...]], ...] = tuple((name, tuple(p.shape)) for name, p in named)
        self.length = sum(parameter.numel() for _, parameter in named)
        self._parameters = [parameter for _, parameter in named]
        self._weights = torch.empty(self.length, device=self.device)
        self._gradient = torch.zeros(self.length, device=self.device)
        self._gradients = self._flatten()
        self._host_weights, self._host_gradient = _on_host(self._weights), _on_host(self._gradient)
        self.local: Vector = self._host_weights.numpy()
        """The weights on the CPU. On 'cpu' the model's own memory; on CUDA a copy: `load(local)` after a change."""

    def _flatten(self) -> list[Tensor]:
        """Moves the parameters into the flat vector and gives each its view of the flat gradient."""
        sizes = [parameter.numel() for parameter in self._parameters]
        gradients = []
        for parameter, weights, gradient in zip(
            self._parameters, torch.split(self._weights, sizes), torch.split(self._gradient, sizes), strict=True
        ):
            weights.copy_(parameter.detach().reshape(-1))
            parameter.data = weights.view(parameter.shape)
            parameter.grad = gradient.view(parameter.shape)
            gradients.append(parameter.grad)
        return gradients

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
        if self._host_weights is not self._weights:
            self._weights.copy_(self._host_weights)

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        """The gradient of the mean loss over a mini-batch at the present weights; `seed` fixes dropout (protocol 21),
        `rng` the augmentation. ConfigError where the task's loss can't be used."""
        torch.manual_seed(seed)
        self.model.train()
        inputs, targets = self._prepare(features, labels, rng)
        self._gradient.zero_()
        loss = self.task.loss(self.model, inputs, targets)
        if not loss.requires_grad:
            raise ConfigError(f"The loss of task '{self.task.name}' does not depend on trainable parameters.")
        try:
            loss.backward()  # type: ignore[no-untyped-call]
        except RuntimeError as error:
            raise ConfigError(f"The backward pass of task '{self.task.name}' failed: {error}") from error
        self._gather()
        if self._host_gradient is not self._gradient:
            self._host_gradient.copy_(self._gradient)
        value = float(loss.detach())
        finite = bool(np.isfinite(value)) and _all_finite(self._gradient)
        return Step(self._host_gradient.numpy(), value, len(features), finite)

    def _gather(self) -> None:
        """Autograd may have put a new tensor in a view's place (after a zero_grad() in the loss): copy it back."""
        for parameter, view in zip(self._parameters, self._gradients, strict=True):
            if parameter.grad is not view:
                view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
                parameter.grad = view

    def _prepare(self, features: Array, labels: Array, rng: np.random.Generator | None = None) -> tuple[Tensor, Tensor]:
        inputs, targets = self.task.prepare(features, labels, rng)
        return inputs.to(self.device), targets.to(self.device)

    def _batches(self, features: Array, labels: Array, batch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Evaluation batches whose sizes differ by one at most, so that none is too small for BatchNorm."""
        if len(features) == 0:
            raise DataError(
                f"There are no examples to score task '{self.task.name}' on. Give the split a larger share."
            )
        edges = np.linspace(0, len(features), -(-len(features) // batch) + 1).astype(int)
        for start, end in itertools.pairwise(edges):
            yield self._prepare(features[start:end], labels[start:end])

    @torch.no_grad()
    def recalibrate(self, features: Array, labels: Array, batch: int = 512) -> None:
        """Estimates BatchNorm statistics anew, as the mean over these examples without augmentation (protocol 22)."""
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
        """The loss and the task's metrics in evaluation mode, as means over the examples."""
        self.model.eval()
        totals: dict[str, float] = {}
        for inputs, targets in self._batches(features, labels, batch):
            loss, outputs = self._evaluate(inputs, targets)
            values = {"loss": float(loss), **self.task.metrics(outputs, targets)}
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + float(value) * len(inputs)
        return {name: total / len(features) for name, total in totals.items()}

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
        """Parameters (frozen ones too, tied ones under each name) and buffers as CPU tensors of their own memory."""
        found = self.model.state_dict()
        odd = [name for name, value in found.items() if not isinstance(value, Tensor)]
        if odd:
            raise ConfigError(
                f"The model's state {odd[0]!r} is not a tensor and can't be saved; drop its get_extra_state()."
            )
        return {name: value.detach().cpu().contiguous().clone() for name, value in found.items()}


def use_threads(threads: int) -> None:
    """CPU threads of every torch operation in this process: cores // local workers; 1 for the same bits everywhere."""
    if threads < 1:
        raise ConfigError(f"A process can't compute with {threads} threads; give 1 or more.")
    torch.set_num_threads(threads)


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"There is no device '{name}'; use cpu, cuda, cuda:1 or auto.") from error
    if device.type not in ("cpu", "cuda") or (device.index or 0) >= max(1, torch.cuda.device_count()):
        raise ConfigError(f"Device '{name}' can't be used here; {torch.cuda.device_count()} CUDA devices and cpu can.")
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ConfigError(f"Device '{name}' was asked for, but torch sees no CUDA device here. Use cpu or auto.")
    return device


def _trainable(task: str, model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """Names and parameters in model order; named_parameters lists tied ones once."""
    named = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    if not named:
        raise ConfigError(
            f"The model of task '{task}' has no trainable parameters; at least one must require a gradient."
        )
    for name, parameter in named:
        if is_lazy(parameter):
            raise ConfigError(f"'{name}' of task '{task}' is lazy, so its size is unknown; let model() give all sizes.")
        if parameter.dtype != torch.float32:
            raise ConfigError(
                f"'{name}' of task '{task}' is {parameter.dtype}; trainable parameters must be torch.float32."
            )
    return named


def _on_host(tensor: Tensor) -> Tensor:
    """The tensor itself where it is in main memory, else a pinned copy."""
    if tensor.device.type == "cpu":
        return tensor
    return torch.empty(tensor.shape, pin_memory=True).copy_(tensor)


def _all_finite(flat: Tensor) -> bool:
    """One pass without a temporary: NaN and infinity show up in the smallest or largest element."""
    smallest, largest = torch.aminmax(flat)
    return bool(torch.isfinite(smallest) and torch.isfinite(largest))
