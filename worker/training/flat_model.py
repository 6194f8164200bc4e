"""All trainable parameters of a model as one vector, and their gradient as another."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from paceline.core.values import Vector
from paceline.worker.training.device import on_host


class Flat(NamedTuple):
    """One value for each parameter's element, in order."""

    values: Tensor
    views: tuple[Tensor, ...]
    """Each parameter's part, in its shape."""
    host: Tensor
    """The same in main memory: `values` itself on the CPU, a pinned copy on CUDA."""


class FlatModel:
    """Moves the parameters into one vector, which they are views of from then on. Not thread-safe."""

    def __init__(self, parameters: Sequence[nn.Parameter], device: torch.device) -> None:
        self._parameters = parameters
        self._device = device
        self.length = sum(parameter.numel() for parameter in parameters)
        values, views = self._cut(torch.empty(self.length, device=device))
        for parameter, weights in zip(parameters, views, strict=True):
            weights.copy_(parameter.detach())
            parameter.data = weights
        self._weights = Flat(values, views, on_host(values))
        self.local: Vector = self._weights.host.numpy()
        """The weights on the CPU. On CUDA a copy: `refresh` after a change."""
        self.gradient = self._new_gradient()
        self._spare = list[Flat]()
        self.attach()

    def refresh(self) -> None:
        """`local` was changed in place: the model follows. Costs nothing on the CPU."""
        if self._weights.host is not self._weights.values:
            self._weights.values.copy_(self._weights.host)

    def attach(self) -> None:
        """Autograd adds to the vector from now on."""
        for parameter, view in zip(self._parameters, self.gradient.views, strict=True):
            parameter.grad = view

    def detach(self) -> None:
        """The parameters have no gradients, so that nobody's zero_grad() clears the vector."""
        for parameter in self._parameters:
            parameter.grad = None

    def untouched(self) -> tuple[int, ...]:
        """Numbers of the parameters that have no gradient."""
        return tuple(number for number, parameter in enumerate(self._parameters) if parameter.grad is None)

    def forget(self, which: Sequence[int]) -> None:
        """These have no gradients, until autograd makes some."""
        for number in which:
            self._parameters[number].grad = None

    def gather(self) -> None:
        """Autograd may have put a new tensor in a view's place (after somebody's zero_grad()): copies it back."""
        for parameter, view in zip(self._parameters, self.gradient.views, strict=True):
            if parameter.grad is not view:
                view.zero_() if parameter.grad is None else view.copy_(parameter.grad)
                parameter.grad = view

    def to_host(self) -> Vector:
        """The gradient in main memory."""
        if self.gradient.host is not self.gradient.values:
            self.gradient.host.copy_(self.gradient.values)
        found: Vector = self.gradient.host.numpy()
        return found

    def size(self) -> float:
        """The gradient's largest element without its sign; NaN or infinite where any element is. One pass without a
        temporary."""
        smallest, largest = torch.aminmax(self.gradient.values)
        return float(torch.maximum(-smallest, largest))

    def keep_gradient(self) -> None:
        """The next gradient goes to other memory, the one after that to this again."""
        present = self.gradient
        self.gradient = self._spare.pop() if self._spare else self._new_gradient()
        self._spare.append(present)

    def _new_gradient(self) -> Flat:
        values, views = self._cut(torch.zeros(self.length, device=self._device))
        return Flat(values, views, on_host(values))

    def _cut(self, values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        cuts = torch.split(values, [parameter.numel() for parameter in self._parameters])
        return values, tuple(cut.view(parameter.shape) for cut, parameter in zip(cuts, self._parameters, strict=True))
