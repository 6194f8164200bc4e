"""A model whose gradients a script of the user's own computes."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import NoReturn

import numpy as np
import torch
from torch import nn

from paceline.core.errors import ConfigError
from paceline.tasks.task import Task
from paceline.worker.loop_thread import LoopThread
from paceline.worker.training.model_and_gradient import Array, Replica
from paceline.worker.training.step_result import Step


@dataclass(frozen=True, slots=True)
class Answer:
    """What a script's step leaves, beside the gradients in the model's parameters."""

    examples: int
    loss: float | None = None
    """None: not told."""
    finite: bool = True
    """False where a gradient scaler has found that it is not."""
    rates: tuple[float, ...] = ()
    """What schedulers make of the rate of each group (ratio); empty: all are as described."""


class ScriptReplica(Replica):
    """The script's model. It stays on the script's device."""

    def __init__(self, name: str, model: nn.Module, left_out: Collection[str] = ()) -> None:
        """`name`: of the script, for errors; `left_out`: parameters that the optimizer does not step."""
        super().__init__(_task(name), str(_device(name, model)), model=model, left_out=left_out)
        self._flat.detach()
        self.thread = LoopThread()

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        """Waits for the script's; `seed` fixes what the script draws from torch until then."""
        torch.manual_seed(seed)
        answer: Answer = self.thread.ask(True)
        untouched = self._flat.untouched()
        step = self.gathered(answer.loss, answer.examples)
        self._flat.forget(untouched)
        return replace(step, finite=step.finite and answer.finite, rates=answer.rates, untouched=untouched)


def inner(model: nn.Module) -> nn.Module:
    """The model itself, inside of what torch.compile and nn.DataParallel have made of it."""
    while True:
        within = getattr(model, "_orig_mod", None)
        if within is None and isinstance(model, nn.DataParallel):
            within = model.module
        if within is None:
            return model
        model = within


def _device(name: str, model: nn.Module) -> torch.device:
    """The one that all trainable parameters are on."""
    devices = {parameter.device for parameter in model.parameters() if parameter.requires_grad}
    if len(devices) > 1:
        raise ConfigError(
            f"The model of {name} is on {', '.join(sorted(map(str, devices)))}; Paceline trains one that is on one device."
        )
    return next(iter(devices), torch.device("cpu"))


def _task(name: str) -> Task:
    """What stands where a task would: a script brings data, loss and metrics itself."""

    def absent(*_: object) -> NoReturn:
        raise ConfigError(f"{name} is a script; it has no functions of a task.")

    return Task(
        name=name,
        data=absent,
        model=absent,
        prepare=absent,
        loss=absent,
        metrics=absent,
        settings={},
    )
