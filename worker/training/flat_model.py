"""All trainable parameters of a model as one vector, and their gradient as another; a script's buffers behind them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

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
    """Moves the parameters into one vector, which they are views of from then on; those that are not float32 follow it. Not
    thread-safe."""

    def __init__(
        self, parameters: Sequence[nn.Parameter], device: torch.device, buffers: Sequence[Tensor] = ()
    ) -> None:
        """`buffers`: float32, which the vector ends with; their gradient is how far they have gone back since `refresh`."""
        self._parameters = parameters
        self._buffers = buffers
        self._device = device
        self.weights_end = sum(parameter.numel() for parameter in parameters)
        """Where the parameters end in the vector, and the buffers begin."""
        self.length = sum(tensor.numel() for tensor in (*parameters, *buffers))
        values, views = self._cut(torch.empty(self.length, device=device))
        for tensor, weights in zip((*parameters, *buffers), views, strict=True):
            weights.copy_(tensor.detach())
            if tensor.dtype == torch.float32:
                tensor.data = weights
        self._others = [
            (tensor, weights)
            for tensor, weights in zip(parameters, views, strict=False)
            if tensor.dtype != torch.float32
        ]
        """Parameters of another precision, and the float32 values that they are rounded from."""
        self._before = [buffer.clone() for buffer in buffers]
        self._weights = Flat(values, views, on_host(values))
        self.local: Vector = self._weights.host.numpy()
        """The weights on the CPU. On CUDA a copy: `refresh` after a change."""
        self.gradient = self._new_gradient()
        self.untouched: tuple[int, ...] = ()
        """Numbers of the parameters that had no gradient when the last one was gathered."""
        self._spare = list[Flat]()
        self.attach()

    def refresh(self) -> None:
        """`local` was changed in place: the model follows. Costs nothing on the CPU."""
        if self._weights.host is not self._weights.values:
            self._weights.values.copy_(self._weights.host)
        for parameter, weights in self._others:
            parameter.data.copy_(weights)
        for before, buffer in zip(self._before, self._buffers, strict=True):
            before.copy_(buffer)

    def follow(self) -> None:
        """The model was changed in place: `local` follows."""
        for parameter, weights in self._others:
            weights.copy_(parameter.detach())
        if self._weights.host is not self._weights.values:
            self._weights.host.copy_(self._weights.values)

    def attach(self) -> None:
        """Autograd adds to the vector from now on."""
        for parameter, view in zip(self._parameters, self.gradient.views, strict=False):
            parameter.grad = view if parameter.dtype == view.dtype else None

    def detach(self) -> None:
        """The parameters have no gradients, so that nobody's zero_grad() clears the vector."""
        for parameter in self._parameters:
            parameter.grad = None

    def outside(self, optimizer: Optimizer) -> tuple[int, ...]:
        """Numbers of the parameters that it does not step."""
        mine = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
        return tuple(number for number, one in enumerate(self._parameters) if id(one) not in mine)

    @contextmanager
    def without(self, which: Sequence[int]) -> Iterator[None]:
        """Inside the block, these have no gradients; afterwards they have the ones that they had."""
        kept = [(self._parameters[number], self._parameters[number].grad) for number in which]
        for parameter, _ in kept:
            parameter.grad = None
        yield
        for parameter, gradient in kept:
            parameter.grad = gradient

    def gather(self) -> None:
        """Copies what autograd has put in the views' places (after somebody's zero_grad()), sparse ones as dense ones; 0 where there
        is no gradient."""
        empty, views, grads = list[int](), list[Tensor](), list[Tensor]()
        for number, (parameter, view) in enumerate(zip(self._parameters, self.gradient.views, strict=False)):
            if (grad := parameter.grad) is None:
                empty.append(number)
            elif grad.is_sparse:
                view.zero_().add_(grad)
            elif grad is not view:
                views.append(view)
                grads.append(grad)

        _copy(views, grads)
        if empty:
            torch._foreach_zero_([self.gradient.views[number] for number in empty])
        self.untouched = tuple(empty)
        self._gather_buffers()

    def _gather_buffers(self) -> None:
        views = self.gradient.views[len(self._parameters) :]
        for view, before, buffer in zip(views, self._before, self._buffers, strict=True):
            torch.sub(before, buffer, out=view)
        if (
            self._buffers and self._weights.host is not self._weights.values
        ):  # on a GPU the forward pass has moved them there
            self._weights.host[self.weights_end :].copy_(self._weights.values[self.weights_end :])

    def to_host(self) -> Vector:
        """The gradient in main memory."""
        if self.gradient.host is not self.gradient.values:
            self.gradient.host.copy_(self.gradient.values)
        found: Vector = self.gradient.host.numpy()
        return found

    def spread(self) -> None:
        """The gradient was changed in main memory: the parameters' own follow."""
        if self.gradient.host is not self.gradient.values:
            self.gradient.values.copy_(self.gradient.host)
        views, grads = list[Tensor](), list[Tensor]()
        for parameter, view in zip(self._parameters, self.gradient.views, strict=False):
            if (grad := parameter.grad) is not None and grad.is_sparse:
                parameter.grad = view.sparse_mask(grad.coalesce())
            elif grad is not None and grad is not view:
                views.append(view)
                grads.append(grad)
        _copy(grads, views)

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

    def leave_gradients(self) -> None:
        """Later gradients go to memory that no earlier one was in."""
        self._spare.clear()
        self.gradient = self._new_gradient()
        self.attach()

    def _new_gradient(self) -> Flat:
        values, views = self._cut(torch.zeros(self.length, device=self._device))
        return Flat(values, views, on_host(values))

    def _cut(self, values: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        tensors = (*self._parameters, *self._buffers)
        cuts = torch.split(values, [tensor.numel() for tensor in tensors])
        return values, tuple(cut.view(tensor.shape) for cut, tensor in zip(cuts, tensors, strict=True))


def _copy(to: Sequence[Tensor], source: Sequence[Tensor]) -> None:
    """In one call: of 2,000 small tensors each by itself would cost more than all else of a step."""
    if to:
        torch._foreach_copy_(to, source)
