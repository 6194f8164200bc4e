"""The loss of a task, or of a model in `paceline.train`, where nobody gives one: one rule for both."""

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn import functional

from paceline.core.errors import ConfigError
from paceline.tasks.checks import kind

Loss = Callable[[Tensor, Tensor], Tensor]
"""Of outputs and targets: the mean over the mini-batch."""
_ROUNDED = 0.01
"""How far a sum of shares may be from 1."""
_GIVE = "Name one, as loss= of paceline.train(model), or as loss() in a task's file."


def chosen_loss(outputs: Any, targets: Any) -> tuple[Loss, str]:
    """Returns the loss of outputs and targets where nobody gives one, and why it is that. Their kinds and sizes alone
    decide, but for shares of classes. Raises ConfigError with the choices where none fits, or more than one."""
    both = f"outputs that are {_described(outputs)} and targets that are {_described(targets)}"
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.is_floating_point()):
        raise ConfigError(f"No loss is known for {both}. {_GIVE}")
    if not targets.is_floating_point():
        if outputs.numel() == targets.numel():
            raise ConfigError(
                f"The targets are whole numbers and the model has one output for each, so the loss may be one of two. {_GIVE} "
                "For numbers to predict the mean squared error, functional.mse_loss; for two classes binary cross entropy, "
                "functional.binary_cross_entropy_with_logits; both of targets as float. For classes the model may have an "
                "output for each instead."
            )
        count = outputs.shape[-1 if is_last(outputs, targets) else 1]
        return cross_entropy, f"the targets are whole numbers and the model has {count} outputs for each"

    if outputs.shape == targets.shape and outputs.shape[1:].numel() > 1:
        if _are_shares(targets):
            return cross_entropy, "the targets are shares of classes, which add up to 1"
        raise ConfigError(
            f"Each target has several numbers, which are no shares of classes: they don't add up to 1. {_GIVE} For numbers to "
            "predict the mean squared error, functional.mse_loss; for several classes at a time binary cross entropy, "
            "functional.binary_cross_entropy_with_logits."
        )
    if outputs.numel() == targets.numel():
        return squared_error, "the targets are numbers"
    raise ConfigError(f"No loss is known for {both}. {_GIVE}")


def refuse_flags(outputs: Any, targets: Any) -> None:
    """Raises ConfigError where the first targets, one number each, are all 0 or 1 in floating point: they may be numbers or two
    classes."""
    if targets.is_floating_point() and outputs.numel() == len(targets) > 1 and ((targets == 0) | (targets == 1)).all():
        raise ConfigError(
            f"The targets are 0 and 1 as {targets.dtype}, so the loss may be one of two. {_GIVE} For two classes binary cross "
            "entropy, functional.binary_cross_entropy_with_logits; for numbers to predict the mean squared error, "
            "functional.mse_loss."
        )


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns the mean over all targets, class numbers or shares of each class; classes are the outputs' last dimension, or
    their second one."""
    if targets.is_floating_point():
        return functional.cross_entropy(outputs, targets)
    if is_last(outputs, targets):
        outputs, targets = outputs.flatten(0, -2), targets.flatten()
    return functional.cross_entropy(outputs, targets.long())


def squared_error(outputs: Tensor, targets: Tensor) -> Tensor:
    """Returns its mean; outputs of one column fit targets of none."""
    return functional.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype))


def is_last(outputs: Tensor, targets: Tensor) -> bool:
    """Whether classes are the outputs' last dimension."""
    return outputs.shape[:-1] == targets.shape


def _are_shares(labels: Tensor) -> bool:
    """Whether each example's numbers are shares of classes, in the second dimension."""
    return bool((labels >= 0).all() and ((labels.sum(1) - 1).abs() < _ROUNDED).all())


def _described(found: Any) -> str:
    return f"{kind(found)} of {found.dtype}" if isinstance(found, Tensor) else kind(found)
