"""Says what is wrong with a task whose mini-batch failed: the layer and the line of the user's file that made it, the sizes
that don't fit, or the labels that the model has no outputs for."""

import inspect
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from paceline.core.errors import ConfigError, PacelineError
from paceline.data.classes import if_numbers
from paceline.data.dataset import Array
from paceline.tasks import defaults
from paceline.tasks.checks import kind
from paceline.tasks.task import Task

IGNORED = -100
"""The label that torch's losses pass over."""
_WRITE = " For numbers to predict write loss(), like functional.mse_loss(model(inputs).squeeze(1), labels)."
_OURS = ("paceline", "worker", "__main__")
_OTHERS = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
"""Where Python and installed packages are."""


def explained(error: Exception, task: Task, features: Array, labels: Array) -> Exception:
    """The error of a mini-batch with what a second look at it shows, on the CPU with a new model; as it is where that shows
    nothing."""
    trace = _Trace()
    try:
        with torch.random.fork_rng(devices=[]), trace.notes():
            model = task.model()
            inputs, targets = task.prepare(features, labels, None)
            task.loss(model.train(), inputs, targets)
    except PacelineError as again:
        why = _why(again, task, trace, inputs, targets) if trace.seen else ""
        return ConfigError(f"{_stopped(again)}{why}")
    except Exception:  # the second look itself: the first one stands
        return error
    if str(error).startswith("metrics()"):
        return ConfigError(f"{_stopped(error)} {_both(trace.outputs, targets)}")
    if "dtype" in str(error) and _are_whole_numbers(trace.outputs, targets):  # of the backward pass
        return ConfigError(f"{_stopped(error)} {_both(trace.outputs, targets)}{if_numbers()}")
    return error


def unfit_labels(outputs: Any, targets: Tensor) -> str:
    """What to say if class labels lie beyond the model's outputs; empty if they don't."""
    classes = targets.ndim == 1 and targets.dtype in (torch.int64, torch.int32, torch.uint8)
    if not (isinstance(outputs, Tensor) and outputs.ndim == 2 and classes):
        return ""
    counted = targets[targets != IGNORED]
    low, high, width = (int(counted.min()), int(counted.max()), outputs.shape[1]) if len(counted) else (0, 0, 1)
    if low >= 0 and high < width:
        return ""
    seen = f"The labels go from {low} to {high}, but the model has {width} outputs, for labels 0 to {width - 1}."
    if high == width and low > 0:
        return f"{seen} They seem to count from 1: subtract 1 from each."
    what = f"give model() {high + 1} outputs, or " if low >= 0 else ""
    return f"{seen} {(what + 'number the classes from 0.').capitalize()}{if_numbers()}"


def _why(error: PacelineError, task: Task, trace: "_Trace", inputs: Tensor, targets: Tensor) -> str:
    """Sentences to set behind the error's own."""
    one = f"An example's input has shape {tuple(inputs.shape[1:])}, the model was given {tuple(inputs.shape)}."
    if trace.inside is not None:
        layer, arguments = trace.inside
        if not _is_torchs(layer):
            return f" {one}"
        line = trace.lines.get(id(layer))
        which = f"{line}: {_layer(layer)}" if line else _layer(layer)
        return f" {which} got {_shapes(arguments)}.{_remedy(layer, arguments) or f' {one}'}"
    are_numbers, is_default = _are_whole_numbers(trace.outputs, targets), defaults.is_default(task.loss)
    if (is_default or not are_numbers) and (wrong := unfit_labels(trace.outputs, targets)):
        return f" {wrong}{_WRITE if are_numbers else ''}"
    told = f" {_both(trace.outputs, targets)}{if_numbers() if are_numbers else ''}"
    if is_default:
        told += " Without loss() in your file whole numbers are classes: one output for each, labels from 0."
        if targets.is_floating_point():
            told += _WRITE
    return told


def _are_whole_numbers(outputs: Any, targets: Tensor) -> bool:
    """Whether each label is a whole number and has one output, so that a regression may be meant."""
    return isinstance(outputs, Tensor) and outputs.numel() == targets.numel() and not targets.is_floating_point()


def _stopped(error: Exception) -> str:
    """The text with a full stop."""
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _both(outputs: Any, targets: Tensor) -> str:
    dtype = f" of {outputs.dtype}" if isinstance(outputs, Tensor) else ""
    return f"The model's outputs are {kind(outputs)}{dtype}, the labels {kind(targets)} of {targets.dtype}."


class _Trace:
    """What a model's layers were given, until one failed, and which lines made them."""

    def __init__(self) -> None:
        self.lines: dict[int, str] = {}
        """'FILE, line N' of the user's own for each layer that has parameters, by its id."""
        self.outputs: Any = None
        """Of the outermost module that has returned last."""
        self.seen = False
        self._open: list[tuple[nn.Module, tuple[Any, ...]]] = []

    @property
    def inside(self) -> tuple[nn.Module, tuple[Any, ...]] | None:
        """The innermost layer that never returned, and what it was given."""
        return self._open[-1] if self._open else None

    @contextmanager
    def notes(self) -> Iterator[None]:
        """Notes what is built and called meanwhile."""
        handles = [
            hooks.register_module_parameter_registration_hook(self._built),
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _built(self, layer: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if found := _own_line(inspect.currentframe()):
            self.lines.setdefault(id(layer), found)

    def _enter(self, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        self.seen = True
        self._open.append((layer, arguments))

    def _leave(self, layer: nn.Module, arguments: tuple[Any, ...], outputs: Any) -> None:
        self._open.pop()
        if not self._open:
            self.outputs = outputs


def _own_line(frame: FrameType | None) -> str:
    """The innermost line on the stack that is neither torch's nor ours."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith(("<", *_OTHERS)) and str(frame.f_globals.get("__name__")).split(".")[0] not in _OURS:
            return f"{file}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _is_torchs(layer: nn.Module) -> bool:
    return type(layer).__module__.startswith("torch.nn.")


def _layer(layer: nn.Module) -> str:
    return f"{type(layer).__name__}({layer.extra_repr()})"


def _shapes(arguments: tuple[Any, ...]) -> str:
    return ", ".join(f"inputs of shape {tuple(part.shape)}" for part in arguments if isinstance(part, Tensor))


def _remedy(layer: nn.Module, arguments: tuple[Any, ...]) -> str:
    """Which size would fit."""
    given = arguments[0] if arguments and isinstance(arguments[0], Tensor) else None
    if given is None or given.ndim < 2:
        return ""
    if isinstance(layer, nn.Linear) and given.shape[-1] != layer.in_features:
        flat = given[0].numel()
        if given.ndim > 2 and flat == layer.in_features:
            return " Put nn.Flatten() before it."
        return f" Its in_features must be {given.shape[-1] if given.ndim == 2 else f'{flat}, behind nn.Flatten()'}."
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d) and given.ndim > 2 and given.shape[1] != layer.in_channels:
        return f" Its in_channels must be {given.shape[1]}."
    return ""
