"""How a model computes the loss of a mini-batch of any form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from paceline.core.errors import ConfigError
from paceline.tasks.checks import kind
from paceline.tasks.default_loss import chosen_loss, cross_entropy, is_last, refuse_flags
from paceline.worker.training.explain_task_errors import IGNORED, unfit_labels

WHOLE = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Computed(NamedTuple):
    """Of one mini-batch; outputs and targets where it has the form (inputs, targets)."""

    loss: Tensor
    outputs: Any = None
    targets: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Computing:
    """One of `loss` and `batch_loss` is set once `choose` has looked at a mini-batch."""

    loss: Callable[[Any, Any], Tensor] | None = None
    """loss(outputs, targets), for mini-batches (inputs, ..., targets)."""
    batch_loss: Callable[[nn.Module, Any], Tensor] | None = None
    """batch_loss(model, batch), for any mini-batch."""
    metrics: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """By name, of outputs and targets, or of model and mini-batch if `batch_loss` is set."""

    def compute(self, model: nn.Module, batch: Any) -> Computed:
        """Raises what the user's functions raise; ConfigError where the mini-batch has no targets or the loss is no scalar."""
        if self.batch_loss is not None:
            return Computed(_scalar(self.batch_loss(model, batch), "batch_loss(model, batch)"))
        inputs, targets = parted(batch)
        outputs = model(*inputs)
        assert self.loss is not None
        try:
            found = self.loss(outputs, targets)
        except Exception as error:
            if isinstance(targets, Tensor) and (wrong := unfit_labels(outputs, targets)):
                raise ConfigError(wrong) from error
            error.add_note(f"loss(outputs, targets) got {kind(outputs)} and {kind(targets)}.")
            raise
        return Computed(_scalar(found, "loss(outputs, targets)"), outputs, targets)

    def choose(self, model: nn.Module, batch: Any) -> tuple[dict[str, Any], str]:
        """Where no loss was given, one that fits, as the field to set, and a sentence that says which and why. ConfigError:
        none fits."""
        if self.loss is not None or self.batch_loss is not None:
            return {}, ""
        if isinstance(batch, Mapping) or hasattr(batch, "keys"):
            return self._of_dicts(model, batch)
        inputs, targets = parted(batch)
        with torch.no_grad():
            outputs = model(*inputs)
        loss, why = chosen_loss(outputs, targets)
        refuse_flags(outputs, targets)
        name = "cross entropy" if loss is cross_entropy else "mean squared error"
        return {"loss": loss}, f"loss: {name}, because {why}"

    def _of_dicts(self, model: nn.Module, batch: Any) -> tuple[dict[str, Any], str]:
        with torch.no_grad():
            try:
                found = getattr(model(**batch), "loss", None)
            except TypeError:
                found = None
        if isinstance(found, Tensor):
            return {"batch_loss": models_own}, "loss: the model's own, model(**batch).loss"
        raise ConfigError(
            f"A mini-batch is a dict of {', '.join(map(str, batch.keys()))}, and the model returns no loss for "
            "it. Give batch_loss=a function of model and mini-batch."
        )


def parted(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """The model's inputs and the targets. ConfigError where the mini-batch is no tuple of both."""
    if isinstance(batch, (tuple, list)) and len(batch) >= 2:
        return tuple(batch[:-1]), batch[-1]
    raise ConfigError(
        f"A mini-batch is {kind(batch)}; loss(outputs, targets) and the default loss need (inputs, targets). Give "
        "batch_loss=a function of model and mini-batch instead."
    )


def are_scores(outputs: Any, targets: Any) -> bool:
    """Whether the targets are class labels and the outputs have a score for each class."""
    if not (isinstance(outputs, Tensor) and isinstance(targets, Tensor) and outputs.is_floating_point()):
        return False
    fits = is_last(outputs, targets) or outputs.shape[:1] + outputs.shape[2:] == targets.shape
    return targets.dtype in WHOLE and outputs.ndim == targets.ndim + 1 and fits and outputs.shape[-1] > 1


def models_own(model: nn.Module, batch: Any) -> Tensor:
    """The loss that a model says itself, as those of transformers do."""
    return model(**batch).loss  # type: ignore[no-any-return]


def hits(outputs: Tensor, targets: Tensor) -> tuple[int, int]:
    """How many class labels were met, and of how many."""
    found = outputs.argmax(-1 if is_last(outputs, targets) else 1)
    counted = targets != IGNORED
    return int(((found == targets) & counted).sum()), int(counted.sum())


def examples_in(batch: Any) -> int:
    """How many a mini-batch has: the length of its first tensor."""
    leaves = _pytree.tree_leaves(dict(batch) if hasattr(batch, "keys") else batch)
    return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), 1)


def sent(batch: Any, device: torch.device) -> Any:
    """The mini-batch with its tensors on the device."""
    if not isinstance(batch, Tensor) and callable(getattr(batch, "to", None)):
        return batch.to(device)
    return _pytree.tree_map_only(Tensor, lambda one: one.to(device, non_blocking=True), batch)


def _scalar(found: Any, what: str) -> Tensor:
    if isinstance(found, Tensor) and found.ndim == 0:
        return found
    raise ConfigError(f"{what} gave {kind(found)}; expected a scalar tensor, the mean over the mini-batch.")
