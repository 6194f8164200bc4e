"""Looks once at what reaches a model, for columns of numbers that it can't learn from."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from paceline.core.large_numbers import LARGE, large_numbers

_NAME = 40
"""Most characters of a column's name that are shown."""


class LargeInputs:
    """Columns of large numbers in the first mini-batch, where the first layer with weights is linear or recurrent: another one,
    like a normalisation, may scale them. Not thread-safe."""

    def __init__(self, model: nn.Module, names: Sequence[str] = ()) -> None:
        """`names`: of the columns; they count where there are as many as the layer takes."""
        self.columns: list[str] = []
        """Each with its largest number; none before the first mini-batch, and of a model that torch compiles."""
        self._names = names
        layers = [layer for layer in model.modules() if _has_weights(layer) and not isinstance(layer, nn.Embedding)]
        self._hooks = [layer.register_forward_pre_hook(self._look) for layer in layers]

    def __str__(self) -> str:
        """The line for people; empty where there is nothing to say."""
        return large_numbers(self.columns, "scale them, or leave them out") if self.columns else ""

    def _look(self, layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        """Called before each layer, until the first one."""
        if torch.compiler.is_compiling() or not self._hooks:
            return
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()
        if isinstance(layer, nn.Linear | nn.RNNBase) and inputs:
            self.columns = self._large(inputs[0])

    def _large(self, inputs: Any) -> list[str]:
        """Those of a tensor (..., columns)."""
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or not inputs.numel():
            return []
        try:
            most = inputs.detach().abs().reshape(-1, inputs.shape[-1]).amax(0).tolist()
        except RuntimeError:  # inside of torch.func.vmap a tensor has no values
            return []
        names = [repr(name[:_NAME]) for name in self._names]
        if len(names) != len(most):
            names = [f"inputs[{':' if inputs.ndim == 2 else '...'}, {number}]" for number in range(len(most))]
        return [f"{name} (up to {value:.3g})" for name, value in zip(names, most, strict=True) if value > LARGE]


def _has_weights(layer: nn.Module) -> bool:
    """Whether it has parameters, and no layers in it."""
    return next(layer.children(), None) is None and next(layer.parameters(), None) is not None
