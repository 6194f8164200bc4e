"""The optimizer and the scheduler that a user gave, as objects over the model's parameters."""

import difflib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedParameter
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from paceline.core.errors import ConfigError
from paceline.worker.script.torch_optimizers import parameters_of, refuse_closures

_NAMES = {name.lower(): name for name in dir(torch.optim) if isinstance(getattr(torch.optim, name), type)}
INTERVALS = ("epoch", "step")
"""What a scheduler may be stepped after."""
_WANTED = (
    "an optimizer over the model's parameters (torch.optim.AdamW(model.parameters(), lr=0.001)), a function of the "
    "parameters, or a name like 'adamw'"
)


def read_optimizer(found: Any, model: nn.Module) -> tuple[Optimizer, str]:
    """With a sentence where none was given. ConfigError: it is none, or another model's."""
    _check_model(model)
    if found is None:
        return torch.optim.AdamW(model.parameters(), lr=1e-3), "optimizer: AdamW with a rate of 0.001"
    if isinstance(found, (str, Mapping)):
        return _by_name({"name": found} if isinstance(found, str) else found, model), ""
    made = found(model.parameters()) if callable(found) and not isinstance(found, Optimizer) else found
    if not isinstance(made, Optimizer):
        where = "optimizer" if made is found else "optimizer(parameters)"
        raise ConfigError(f"{where} is a {type(made).__name__}; expected {_WANTED}.")
    refuse_closures(made)
    known = {id(parameter) for parameter in model.parameters()}
    stepped = parameters_of(made)
    strange = sum(id(parameter) not in known for parameter in stepped)
    if strange:
        raise ConfigError(
            f"{strange} of the {len(stepped)} parameters of the optimizer do not belong to the model. Make the "
            "optimizer from this model's parameters, after the last change to the model: "
            "torch.optim.AdamW(model.parameters())."
        )
    return made, ""


def read_scheduler(found: Any, optimizer: Optimizer) -> Any:
    """A scheduler, or the function that makes one. ConfigError: it is none, another optimizer's, or waits for scores."""
    if found is None or (callable(found) and not isinstance(found, type)):
        return found
    if isinstance(found, ReduceLROnPlateau):
        raise ConfigError(
            "scheduler is a ReduceLROnPlateau, which needs a score that the workers don't have. Use a scheduler "
            "that only counts epochs, like CosineAnnealingLR."
        )
    if not isinstance(found, LRScheduler):
        raise ConfigError(
            f"scheduler is {found!r}; expected a scheduler of torch.optim.lr_scheduler that steps once an epoch, "
            "or a function that makes one from the optimizer."
        )
    if found.optimizer is not optimizer:
        raise ConfigError(
            "The scheduler belongs to another optimizer. Make it from the optimizer that you give as optimizer=."
        )
    return found


def read_interval(found: str | None, scheduler: Any) -> str:
    """What the scheduler is stepped after. ConfigError: it is neither epoch nor step, or there is no scheduler."""
    if found not in (None, *INTERVALS):
        raise ConfigError(f"scheduler_interval is {found!r}; expected {' or '.join(map(repr, INTERVALS))}.")
    if found is not None and scheduler is None:
        raise ConfigError(
            f"scheduler_interval is {found!r}, but there is no scheduler. Give scheduler=, or leave it out."
        )
    return found or INTERVALS[0]


def _check_model(model: nn.Module) -> None:
    lazy = [name for name, each in model.named_parameters() if isinstance(each, UninitializedParameter)]
    if lazy:
        raise ConfigError(
            f"The model's {lazy[0]} has no shape yet. Call the model once with an example before training: model(x)."
        )
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError("The model has no parameters to train: all are frozen, or it has none.")


def _by_name(section: Mapping[str, Any], model: nn.Module) -> Optimizer:
    name = str(section.get("name", ""))
    if name.lower() not in _NAMES or name.lower() == "optimizer":
        near = difflib.get_close_matches(name.lower(), list(_NAMES), 1)
        hint = f" Did you mean {_NAMES[near[0]]!r}?" if near else ""
        raise ConfigError(f"There is no optimizer {name!r} in torch.optim.{hint}")
    make: Callable[..., Optimizer] = getattr(torch.optim, _NAMES[name.lower()])
    options = {key: value for key, value in section.items() if key != "name"}
    try:
        return make(model.parameters(), **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"optimizer: {error}") from error
