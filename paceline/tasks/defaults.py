"""What a task's file need not say: inputs are float32, the loss is what fits the labels, the metric the accuracy where labels
are classes."""

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

_IGNORED = -100
"""A label that torch's cross entropy leaves out."""


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """The examples as they are: float32 features; int64 labels, or float32 ones where they are not whole numbers."""
    import torch

    whole = labels.dtype.kind in "iub"
    # np.array copies: shards are read-only memory maps, which torch must not write to
    return (
        torch.from_numpy(np.array(features, dtype=np.float32)),
        torch.from_numpy(np.array(labels, dtype=np.int64 if whole else np.float32)),
    )


def loss(model: "torch.nn.Module", inputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Returns the mean loss of the model's outputs, as paceline/tasks/default_loss.py chooses it."""
    from paceline.tasks.default_loss import chosen_loss

    outputs = model(inputs)
    return chosen_loss(outputs, labels)[0](outputs, labels)


def metrics(outputs: Any, labels: "torch.Tensor") -> dict[str, float]:
    """Accuracy (ratio): how often the largest output is the label's; nothing where labels are no classes."""
    if not are_class_scores(outputs, labels):
        return {}
    known = labels != _IGNORED
    return {"accuracy": float((outputs.argmax(1) == labels)[known].double().mean())} if known.any() else {}


def is_default(function: Callable[..., Any]) -> bool:
    """Whether a task's function is one of these."""
    return inspect.unwrap(function) in (prepare, loss, metrics)


def counted(labels: "torch.Tensor") -> int:
    """How many labels the means that `loss` and `metrics` give are over: those that are left out don't count."""
    return len(labels) if labels.is_floating_point() else int((labels != _IGNORED).sum())


def are_class_scores(outputs: Any, labels: "torch.Tensor") -> bool:
    """Whether labels are whole numbers and the outputs (examples, classes, ...) have a score for each of them."""
    import torch

    if not isinstance(outputs, torch.Tensor) or outputs.ndim < 2 or labels.is_floating_point():
        return False
    classes = outputs.shape[1]
    if classes < 2 or outputs.shape[:1] + outputs.shape[2:] != labels.shape:
        return False
    return bool((((labels >= 0) & (labels < classes)) | (labels == _IGNORED)).all())
