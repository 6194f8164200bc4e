"""All trainable parameters of a model as one vector, and their gradient as another; a script's buffers behind them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from paceline.core.values import Vector
from paceline.data.dataset import Rows
from paceline.worker.training.device import on_host


class Flat(NamedTuple):
    """One value for each parameter's element, in order."""

    values: Tensor
    views: tuple[Tensor, ...]
    """Each parameter's part, in its shape."""
    host: Tensor
    """The same in main memory: `values` itself on the CPU, a pinned copy on CUDA."""
    array: Vector
    """That memory, which stays where it is even if torch moves what parameters share with it."""


_WHOLE_LOOKS = 2
"""Looks at all weights; later ones are at some."""
_RUNS, _RUN = 16, 16
"""Weights that a later look is at: runs, and weights of each, since each run is a wait for memory."""


class FlatModel:
    """Moves the parameters into one vector, which they are views of from then on; those that are not float32, or lie in another
    order, or that the script moves later, follow it by copies. Not thread-safe."""

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
        self._weights = self._new()
        views = self._weights.views
        for tensor, weights in zip((*parameters, *buffers), views, strict=True):
            weights.copy_(tensor.detach())
            if tensor.dtype == torch.float32 and tensor.is_contiguous():
                tensor.data = weights
        self._others = [
            (tensor, weights)
            for tensor, weights in zip(parameters, views, strict=False)
            if tensor.data_ptr() != weights.data_ptr()
        ]
        """Parameters that lie elsewhere, and the values that they are copied from."""
        self._addresses = [parameter.data_ptr() for parameter in parameters]
        self._before = [buffer.clone() for buffer in buffers]
        self._address = self._weights.array.ctypes.data
        self.local: Vector = self._weights.array
        """The weights on the CPU. On CUDA a copy: `refresh` after a change."""
        if self._weights.host is not self._weights.values:
            self._weights.host.copy_(self._weights.values)
        self._looks: int | None = None
        """Refreshes since the looks have begun; None: nobody looks."""
        self._looked_at: Rows | slice = slice(0, self.weights_end)
        self._sample: Vector | None = None
        """Those weights after the last refresh."""
        self.gradient = self._new()
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
        if self._looks is not None:
            self._looks += 1
            if self._looks == _WHOLE_LOOKS + 1:
                begins = np.random.default_rng(0).integers(self.weights_end, size=(_RUNS, 1))
                self._looked_at = ((begins + np.arange(_RUN)) % self.weights_end).ravel()
            self._sample = self._seen()

    def begin_looks(self) -> None:
        """From the next refresh on, `look` sees changes."""
        self._looks = 0

    def look(self) -> int | None:
        """Lets parameters that the script has moved follow by copies from now on. Returns the number of one whose weights it
        has changed since the last refresh, if that is seen: the first looks are at all, later ones at some."""
        before, now = self._sample, self._seen()
        self._adopt_moved()
        if before is None or before.tobytes() == now.tobytes():
            return None
        place = np.arange(self.weights_end)[self._looked_at][np.flatnonzero(before != now)[0]]
        return int(np.searchsorted(np.cumsum([one.numel() for one in self._parameters]), place, side="right"))

    def _seen(self) -> Vector:
        values = self._weights.values
        if values is self._weights.host and values.data_ptr() == self._address:
            return np.array(self.local[self._looked_at])
        found: Vector = values[self._looked_at].cpu().numpy()
        return np.array(found)

    def _adopt_moved(self) -> None:
        values = self._weights.values
        if values is self._weights.host and values.data_ptr() != self._address:
            # the whole vector has gone with a parameter, to where other processes read it
            self._weights = self._weights._replace(host=torch.from_numpy(self.local))
        if (found := list(map(Tensor.data_ptr, self._parameters))) == self._addresses:
            return
        for parameter, view, now, before in zip(
            self._parameters, self._weights.views, found, self._addresses, strict=False
        ):
            if now not in (before, view.data_ptr()):
                self._others.append((parameter, view))
        self._addresses = found

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

    def outside(self, parameters: Sequence[nn.Parameter]) -> tuple[int, ...]:
        """Numbers of the parameters that are none of these."""
        mine = set(map(id, parameters))
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

    @torch.inference_mode()  # takes a tenth less time than no_grad
    def gather(self) -> None:
        """Copies what autograd has put in the views' places (after somebody's zero_grad()), sparse ones as dense ones; 0
        where there is no gradient. What `create_graph=True` has led to them is left out."""
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
        return self.gradient.array

    @torch.no_grad()
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
        self.gradient = self._spare.pop() if self._spare else self._new()
        self._spare.append(present)

    def leave_gradients(self) -> None:
        """Later gradients go to memory that no earlier one was in."""
        self._spare.clear()
        self.gradient = self._new()
        self.attach()

    def _new(self) -> Flat:
        """Zeros, in memory of numpy's where that is main memory: torch's own might be freed under an array that shares it."""
        if self._device.type == "cpu":
            array = np.zeros(self.length, np.float32)
            host = values = torch.from_numpy(array)
        else:
            values = torch.zeros(self.length, device=self._device)
            host = on_host(values)
            array = host.numpy()
        tensors = (*self._parameters, *self._buffers)
        cuts = torch.split(values, [tensor.numel() for tensor in tensors])
        views = tuple(cut.view(tensor.shape) for cut, tensor in zip(cuts, tensors, strict=True))
        return Flat(values, views, host, array)


def _copy(to: list[Tensor], source: list[Tensor]) -> None:
    """In one call: of 2,000 small tensors each by itself would cost more than all else of a step."""
    if to:
        torch._foreach_copy_(to, source)
