"""What a torch optimizer asks for, as settings of a run: servers step with these in its place."""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from paceline.core.errors import ConfigError
from paceline.core.optimizers.groups import MOVING
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Options
from paceline.core.values import GroupOption, Manner

_COMMON = ("lr", "weight_decay", "maximize")
_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "sgd": (*_COMMON, "momentum", "nesterov"),
    "adam": (*_COMMON, "betas", "eps"),
    "adamw": (*_COMMON, "betas", "eps"),
    "adagrad": (*_COMMON, "eps", "initial_accumulator_value"),
    "rmsprop": (*_COMMON, "alpha", "eps", "momentum"),
}
"""Those that mean the same here and in torch."""
_KINDS: Mapping[type[Optimizer], str] = {
    torch.optim.SGD: "sgd",
    torch.optim.Adam: "adam",
    torch.optim.AdamW: "adamw",
    torch.optim.Adagrad: "adagrad",
    torch.optim.RMSprop: "rmsprop",
}
_ABSENT = ("dampening", "amsgrad", "centered", "differentiable", "lr_decay")
"""What changes a step in torch, and servers have not."""
_INSTEAD = (
    "or train under a policy with own steps, like --policy local_sgd, where workers step with any optimizer as it is"
)


Optimizers = Optimizer | Sequence[Optimizer]
"""One, or all of a script's, whose groups are numbered one after the other."""


def described(optimizer: Optimizers, model: nn.Module) -> dict[str, Any]:
    """The section `optimizer` of the settings: its first group's options, and the others as `groups` of exact names. A group's
    rate is the one that its scheduler began with. ConfigError where servers can't step so, or a parameter is not the
    model's."""
    groups = _groups(optimizer)
    names, kinds = _names(groups, model), {_kind(*each) for each in groups}
    if len(kinds) > 1:
        raise ConfigError(
            f"The script steps with {' and '.join(sorted(kinds))}, but servers step with one kind of optimizer. Use one, "
            f"{_INSTEAD}."
        )
    name = kinds.pop()
    main, *others = (_options(one, name, group) for one, group in groups)
    section = {"name": name, **main}
    if others:
        section["groups"] = [
            {"parameters": found, **{key: value for key, value in options.items() if value != main[key]}}
            for found, options in zip(names[1:], others, strict=True)
        ]
    try:
        build_optimizer(Options(**section))
    except ConfigError as error:
        raise _refused(groups[0][0], f"has options that Paceline's have not: {error}") from None
    return section


def refuse_closures(optimizer: Optimizer) -> None:
    """Raises ConfigError where a step computes the loss several times, as that of LBFGS does."""
    needed = inspect.signature(type(optimizer).step).parameters.get("closure")
    if needed is not None and needed.default is inspect.Parameter.empty:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise ConfigError(
            f"{type(optimizer).__qualname__} computes the loss several times in each step, and a step of several workers has "
            f"one gradient of each. Use another optimizer of torch.optim, under any policy: {known}."
        )


def held(optimizer: Optimizers, model: nn.Module) -> frozenset[str]:
    """Names of the parameters that the optimizer holds, also frozen ones: a script may unfreeze them later. To the run all
    others are frozen, as they are to torch."""
    mine = set(map(id, parameters_of(optimizer)))
    return frozenset(name for name, one in model.named_parameters() if id(one) in mine)


def manner(optimizer: Optimizers, section: Mapping[str, Any]) -> Manner:
    """How the optimizer would step just now: by what each group's rate differs from the section's (ratios; empty: none does),
    and the options that do. ConfigError where one has changed that can't travel, or a group was added. Groups of the section
    that are not the optimizer's keep their rates."""
    groups = _groups(optimizer)
    said = [section, *({**section, **group} for group in section.get("groups", ()))]
    if len(groups) > len(said):
        raise ConfigError(
            f"The optimizer has {len(groups)} parameter groups now, but had {len(said)} at paceline.wrap. Add all "
            "groups before paceline.wrap. A group with lr=0 keeps its weights until you raise the rate."
        )
    rates, options = [1.0] * (len(said) + ("averaged" in section)), list[GroupOption]()
    for number, ((one, group), known) in enumerate(zip(groups, said, strict=False)):
        for key, value in _options(one, section["name"], group).items():
            if key == "lr" or value == _plain(known[key]):
                continue
            if key not in MOVING:
                raise ConfigError(
                    f"Parameter group {number} has {key} {value} now, but had {known[key]} at paceline.wrap. "
                    f"Servers can only follow changes of lr, {', '.join(MOVING)}. Keep the other options as they are, "
                    f"{_INSTEAD}."
                )
            options.append(GroupOption(number, key, value if isinstance(value, tuple) else (value,)))
        rates[number] = float(group["lr"]) / known["lr"]
    return Manner(() if all(rate == 1 for rate in rates) else tuple(rates), options=tuple(options))


def parameters_of(optimizer: Optimizers) -> list[nn.Parameter]:
    """Those of all groups."""
    return [parameter for _, group in _groups(optimizer) for parameter in group["params"]]


def _groups(optimizer: Optimizers) -> list[tuple[Optimizer, dict[str, Any]]]:
    """All groups that hold parameters, each with its optimizer."""
    every = [optimizer] if isinstance(optimizer, Optimizer) else optimizer
    return [(one, group) for one in every for group in one.param_groups if group["params"]]


def _kind(optimizer: Optimizer, group: Mapping[str, Any]) -> str:
    """Its name in the settings."""
    name = _KINDS.get(type(optimizer))
    if name is None:
        known = ", ".join(kind.__name__ for kind in _KINDS)
        raise ConfigError(
            f"Servers can't do the steps of {type(optimizer).__qualname__}. Use one of torch.optim: {known}; "
            f"{_INSTEAD}."
        )
    return "adamw" if name == "adam" and group.get("decoupled_weight_decay") else name


def _options(optimizer: Optimizer, name: str, group: Mapping[str, Any]) -> dict[str, Any]:
    """A group's options that servers have, as plain values. ConfigError where it uses others."""
    for key in _ABSENT:
        if group.get(key):
            raise _refused(optimizer, f"uses {key}={group[key]}", _advice(key))
    found = {key: _plain(group.get(key, optimizer.defaults.get(key, False))) for key in _OPTIONS[name]}
    if "initial_accumulator_value" in found:  # torch takes it of the optimizer alone
        found["initial_accumulator_value"] = _plain(optimizer.defaults["initial_accumulator_value"])
    found["lr"] = _plain(group.get("initial_lr", group["lr"])) or _first_rate(name)
    return found


def _first_rate(name: str) -> float:
    """What stands for a rate of 0, which no factor could raise."""
    return build_optimizer(Options(name=name)).usual_rate


def _plain(value: Any) -> Any:
    """A number of Python's, or a tuple of them."""
    if isinstance(value, (tuple, list)):
        return tuple(map(_plain, value))
    return value.item() if isinstance(value, Tensor) else value


def _names(groups: Sequence[tuple[Optimizer, Mapping[str, Any]]], model: nn.Module) -> list[list[str]]:
    """Of each group's parameters; tied ones have the first of their names."""
    known = {id(parameter): name for name, parameter in model.named_parameters()}
    found = list[list[str]]()
    for number, (_, group) in enumerate(groups):
        strangers = [tuple(one.shape) for one in group["params"] if id(one) not in known]
        if strangers:
            raise ConfigError(
                f"Parameter group {number} of the optimizer holds {len(strangers)} that the model does not have, the "
                f"first of shape {strangers[0]}. Give paceline.wrap the module with all of them, "
                "and make the optimizer from its parameters."
            )
        found.append([known[id(one)] for one in group["params"]])
    if not any(one.requires_grad for _, group in groups for one in group["params"]):
        raise ConfigError("The optimizer has no parameter that requires a gradient, so there is nothing to train.")
    every = [name for names in found for name in names]
    if twice := next((name for name in every if every.count(name) > 1), None) if len(set(every)) < len(every) else None:
        raise ConfigError(f"Two optimizers step '{twice}'. Give each parameter to one of them.")
    return found


def _advice(key: str) -> str:
    return "Let a scheduler do it (LambdaLR)" if key == "lr_decay" else "Leave it out"


def _refused(optimizer: Optimizer, what: str, instead: str = "Change them") -> ConfigError:
    kind = type(optimizer).__name__
    return ConfigError(f"This {kind} {what}, which servers can't do. {instead}, {_INSTEAD}.")
