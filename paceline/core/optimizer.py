"""How a slice turns a summed gradient into its next weights; what an optimizer keeps between steps are its slots."""

import difflib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paceline.core.config import Options
from paceline.core.errors import ConfigError
from paceline.core.registry import explain
from paceline.core.values import Vector


class Optimizer(BaseModel, ABC):
    """One update rule. Fields are its options; what it remembers lives in slots that the slice keeps and snapshots, so
    one frozen instance serves any number of slices."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str]
    lr: float = Field(0.1, gt=0, allow_inf_nan=False, description="Learning rate: weights moved per unit of gradient.")

    @property
    @abstractmethod
    def slots(self) -> int:
        """Arrays of the slice's length that it keeps between steps."""

    def new_slots(self, length: int) -> list[Vector]:
        """The slots before the first step."""
        return [np.zeros(length, dtype=np.float32) for _ in range(self.slots)]

    @abstractmethod
    def step(
        self, weights: Vector, out: Vector, gradient: Vector, scale: float, lr: float, slots: Sequence[Vector]
    ) -> None:
        """Writes the next weights to `out`, which may be `weights`, and changes the slots. `scale` makes the gradient
        what it should be (1 / examples of a sum); `lr` is this step's learning rate."""


class Sgd(Optimizer):
    """SGD with momentum (no dampening, not Nesterov) and weight decay, the update of torch.optim.SGD:
    m <- momentum * m + (g + weight_decay * w);  w <- w - lr * m."""

    name: ClassVar[str] = "sgd"
    momentum: float = Field(
        0.9, ge=0, lt=1, description="Share of the last move that goes on (ratio); 0 keeps no slot."
    )
    weight_decay: float = Field(
        1e-4,
        ge=0,
        allow_inf_nan=False,
        description="Pull towards zero: this times the weight is added to its gradient.",
    )

    @property
    def slots(self) -> int:
        return 1 if self.momentum else 0

    def step(
        self, weights: Vector, out: Vector, gradient: Vector, scale: float, lr: float, slots: Sequence[Vector]
    ) -> None:
        from paceline.core import kernels  # not above: a mistake in the config must show without waiting for numba

        if slots:
            kernels.sgd(weights, out, gradient, slots[0], scale, lr, self.momentum, self.weight_decay)
        else:
            kernels.sgd_without_momentum(weights, out, gradient, scale, lr, self.weight_decay)


KINDS: dict[str, type[Optimizer]] = {kind.name: kind for kind in (Sgd,)}


def build_optimizer(options: Options) -> Optimizer:
    """The optimizer that the config names, its options checked."""
    kind = KINDS.get(options.name)
    if kind is None:
        near = difflib.get_close_matches(options.name, KINDS, 1)
        hint = f" Did you mean '{near[0]}'?" if near else ""
        raise ConfigError(f"There is no '{options.name}' among the optimizers: {', '.join(KINDS)}.{hint}")
    try:
        return kind(**options.options)
    except ValidationError as error:
        raise ConfigError("\n".join(explain(error, kind, "optimizer."))) from error
