"""How a slice turns a summed gradient into its next weights; what an optimizer keeps between steps are its slots."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Protocol, Self

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.extension import SettingsRule, stem_of
from paceline.core.settings.config import Options
from paceline.core.values import Sparse, Vector

PACKAGE = "paceline.core.optimizers.builtin"

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, description="Learning rate: what each move is multiplied by.")]
Decay = Annotated[
    float,
    Field(
        ge=0,
        allow_inf_nan=False,
        description="Pull towards zero: this times the weight is added to its gradient.",
    ),
]
Eps = Annotated[
    float,
    # what is much smaller would be 0 in float32
    Field(ge=1e-30, allow_inf_nan=False, description="Added to the divisor, so that it is never 0."),
]
Share = Annotated[float, Field(ge=0, lt=1)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class Group(BaseModel):
    """Parameters of the model that have their own optimizer options, and these options."""

    model_config = ConfigDict(frozen=True, extra="allow")
    parameters: Annotated[tuple[str, ...], BeforeValidator(_listed)] = Field(
        description="Which ones: names as in model.named_parameters(), or patterns like '*.bias'; next to it write options "
        "that differ, like weight_decay: 0."
    )


class Optimizer(BaseModel, ABC):
    """One update rule, for every weight by itself, so that a slice steps as the whole model would. Fields are its
    options; what it remembers lives in slots that the slice keeps and snapshots, so one frozen instance serves any
    number of slices."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: ClassVar[str] = ""
    """As in the config: the stem of its file; of a user's file its path, of a package's the name of the entry point."""
    adaptive: ClassVar[bool] = True
    """Whether its steps are as long for small gradients as for large ones."""
    sparse: ClassVar[bool] = False
    """Whether workers of a linear model push gradients, with which the servers step by this; otherwise they push moves."""
    usual_rate: ClassVar[float] = 0.01
    """A rate that most models bear."""
    rules: ClassVar[tuple[SettingsRule, ...]] = ()
    """What it does not go with."""
    lr: Rate = 0.1
    groups: tuple[Group, ...] = Field(
        (),
        description="Parameters with other options, like [{parameters: ['*.bias'], weight_decay: 0}] "
        "(see docs/choose/policies.md).",
    )
    averaged: tuple[str, ...] = Field(
        (), description="Tensors that are no weights, like BatchNorm's statistics: servers keep the workers' mean."
    )
    maximize: bool = Field(False, description="Climb instead of descend: workers take the negative of each gradient.")

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        cls.name = stem_of(cls)

    @property
    def members(self) -> tuple["Optimizer", ...]:
        """What steps the parameters in no group, and those of each group. ConfigError where a group's options are wrong."""
        main = self.model_dump(exclude={"groups", "averaged"}, by_alias=True, exclude_unset=True)
        is_one = not self.groups and not self.averaged
        alone = self if is_one else self.model_copy(update={"groups": (), "averaged": ()})
        return (alone, *(self._member(main, number) for number in range(len(self.groups))))

    def _member(self, main: dict[str, Any], number: int) -> "Optimizer":
        key, options = f"optimizer.groups.{number}", dict(self.groups[number].model_extra or {})
        for other in {"name", "groups", "averaged"} & options.keys():
            raise ConfigError(
                f"{key}.{other}: got {options[other]!r}, but a group can't set this: it uses the run's optimizer, "
                f"{self.name}. Leave out {other}."
            )
        try:
            return type(self)(**main | options)
        except ValidationError as error:
            raise ConfigError("\n".join(registry.explain(error, type(self), f"{key}."))) from error

    def each(self, change: Callable[["Optimizer"], "Optimizer"]) -> "Optimizer":
        """What the change makes of it; of groups on a slice (`Grouped`), of each."""
        return change(self)

    @property
    @abstractmethod
    def slots(self) -> int:
        """Arrays of the slice's length that it keeps between steps."""

    def new_slots(self, length: int) -> list[Vector]:
        """The slots before the first step."""
        return [np.zeros(length, dtype=np.float32) for _ in range(self.slots)]

    def scaled(self, share: float, alone: float = 1.0) -> float:
        """Factor of the rate for a step on this share of the mini-batch that the rate is meant for (ratio): the share [Goyal et
        al. 2017], or its root for adaptive steps, which don't follow the size of gradients [Malladi et al. 2022]; for these
        larger mini-batches never raise it. `alone`: the share in each of the steps whose mean it is; an adaptive one is
        divided by the noise of so few examples, which the factor makes up for."""
        if not self.adaptive:
            return share
        return min(1.0, math.sqrt(share)) / min(1.0, math.sqrt(alone))

    def spread(self, share: float) -> Self:
        """The rule for steps on this share of the mini-batch, at most 1: running means go over as many examples as they would
        [Malladi et al. 2022]. By default it has none."""
        return self

    def decayed(self, share: float) -> Self:
        """The rule for steps whose rate is larger than by examples: `share` is the rate by examples, divided by theirs.
        What it pulls towards zero belongs to examples, too. By default it has no pull that the rate alone multiplies."""
        return self

    @property
    def server_decay(self) -> float:
        """Pull towards zero that servers have where workers keep the rest, because it is no part of a direction."""
        return 0.0

    @property
    def has_worker_half(self) -> bool:
        """Whether workers can keep the slots, and push what `look_ahead` makes of their gradients: it goes with the step of the
        class that has both."""
        home = next(kind for kind in type(self).__mro__ if "step" in vars(kind))
        return "look_ahead" in vars(home)

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        """Makes of a worker's gradient, in its place, the direction in which the weights are to go, by which servers step
        plainly; changes the slots. It counts the gradient at once, as Nesterov's momentum does: with n workers, the mean of
        gradients alone would come n times as late. `weights`: those that it was computed on; `pushes`: the worker's, this one
        included. By default it stays a gradient."""

    def ascend(self, gradient: Vector) -> None:
        """Makes a gradient, in its place, one to descend by."""
        if self.maximize:
            np.negative(gradient, out=gradient)

    @abstractmethod
    def step(
        self,
        weights: Vector,
        out: Vector,
        gradient: Vector,
        scale: float,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        """Writes the next weights to `out`, which may be `weights`, and changes the slots. `scale` makes the gradient
        what it should be (1 / examples of a sum); `lr` is this step's learning rate; `steps` counts the slice's steps,
        this one included."""

    def step_at(self, weights: Vector, update: Sparse, scale: float, slots: Sequence[Vector], steps: int) -> None:
        """A step at the optimizer's own rate of the weights that a sparse gradient names, in place, at a cost that follows
        these alone; the others as in `step`."""
        places = update.places
        own, memory = weights[places], [slot[places] for slot in slots]
        self.step(own, own, update.values, scale, self.lr, memory, steps)
        weights[places] = own
        for slot, stepped in zip(slots, memory, strict=True):
            slot[places] = stepped


class OwnSteps(Protocol):
    """What a worker steps its own model with: an Optimizer, or a script's own."""

    def new_slots(self, length: int) -> list[Vector]: ...
    def step(
        self,
        weights: Vector,
        out: Vector,
        gradient: Vector,
        scale: float,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None: ...


def build_optimizer(options: Options) -> Optimizer:
    """The optimizer that the config names, its options checked."""
    found = registry.build(PACKAGE, Optimizer, options.name, options.options, "optimizer")
    if found.groups:
        found.members  # noqa: B018 - it says what is wrong with them
    return found
