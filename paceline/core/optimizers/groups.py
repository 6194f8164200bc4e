"""Groups of parameters, each stepped with its own options; and steps in the manner that a script's optimizer asks for."""

import fnmatch
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from pydantic import ConfigDict, SkipValidation, ValidationError

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.optimizers.layout import Layout, Stretch
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.values import AS_SET, GroupOption, Manner, Vector

MOVING = ("momentum", "betas", "weight_decay")
"""Options that may change during a run, besides the rate."""


class Averaged(Optimizer):
    """Of tensors that are no weights, like the running statistics of BatchNorm. Its "gradient" is how far a worker's values
    have gone back since they were pulled, so that a plain step by the mean of several brings the mean of their values; by
    one of them alone, its share of that. No rate has a part in it."""

    is_still: bool = False
    """Whether a step changes nothing: at a worker, whose values have gone there by themselves."""
    share: float = 1.0
    """Of the workers, behind a step."""

    @property
    def slots(self) -> int:
        return 0

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
        """out <- weights - share * scale * gradient."""
        out[:] = weights
        if not self.is_still:
            from paceline.core import kernels  # here: a mistake in the config must show without waiting for numba

            kernels.plain_step(out, gradient, self.share * scale)


@dataclass(frozen=True)
class Grouping:
    """Which group each tensor of a vector is in; 0 are those that the settings name in no group."""

    layout: Layout
    groups: tuple[int, ...]
    """By the number of the tensor."""
    count: int
    """Groups, with that of number 0."""
    averages: bool = False
    """Whether the last one is of tensors that are no weights."""

    @classmethod
    def of(cls, optimizer: Optimizer, layout: Layout) -> "Grouping":
        """As the optimizer's `groups` name them. ConfigError where a name is no parameter's, or a parameter's twice."""
        found = dict[str, int]()
        for number, group in enumerate(optimizer.groups, 1):
            for pattern in group.parameters:
                names = [pattern] if pattern in layout.names else fnmatch.filter(layout.names, pattern)
                if not names:
                    raise _unmatched(f"optimizer.groups.{number - 1}", pattern, layout.names)
                for name in names:
                    if found.setdefault(name, number) != number:
                        raise ConfigError(
                            f"optimizer.groups: parameter '{name}' is in group {found[name] - 1} and in group "
                            f"{number - 1}. Name each parameter in only one group."
                        )
        last = len(optimizer.groups) + bool(optimizer.averaged)
        found |= dict.fromkeys(optimizer.averaged, last)
        groups = tuple(found.get(name, 0) for name in layout.names)
        return cls(layout, groups, last + 1, bool(optimizer.averaged))

    def cut(self, start: int, stop: int) -> "Grouping":
        """That of a range of the vector."""
        return replace(self, layout=self.layout.cut([(start, stop)]))

    def weights(self, vector: Vector) -> list[Vector]:
        """The parts of a vector of this layout that belong to weights."""
        last = self.count - self.averages
        return [vector[start:stop] for start, stop, group, _ in self._stretches if group < last]

    def in_manner(self, optimizer: Optimizer, manner: Manner, missed: Counter[int]) -> Optimizer:
        """The optimizer for the step that follows. `missed`: steps that each tensor was left alone in, by its number; this
        one is counted."""
        if manner == AS_SET and not missed:
            return optimizer
        members = optimizer.parts if isinstance(optimizer, Grouped) else (optimizer,) * self.count
        stretches = self.stretches(manner.untouched, missed)
        missed.update(manner.untouched)
        return Grouped(lr=members[0].lr, parts=members, grouping=self, stretches=stretches, rates=manner.rates)

    def changed(self, optimizer: Optimizer, options: Sequence[GroupOption]) -> Optimizer:
        """The run's optimizer, with these options of its groups in place of the settings' own. ConfigError where a group has no
        such option, or it can't have this value."""
        if not options:
            return optimizer
        parts = list(optimizer.parts if isinstance(optimizer, Grouped) else (optimizer,))
        for group, name, values in options:
            if group >= len(parts) or name not in MOVING or name not in type(parts[group]).model_fields:
                raise ConfigError(f"No group {group} of the optimizer has an option '{name}' that may change.")
            parts[group] = _with(parts[group], {name: values[0] if len(values) == 1 else values})
        return Grouped(lr=parts[0].lr, parts=tuple(parts), grouping=self, stretches=self.stretches())

    def stretches(self, untouched: Sequence[int] = (), missed: Counter[int] | None = None) -> tuple[Stretch, ...]:
        """All elements but those of untouched tensors, as few stretches as can be."""
        if not untouched and not missed:
            return self._stretches
        return self._joined(frozenset(untouched), missed or Counter())

    @cached_property
    def _stretches(self) -> tuple[Stretch, ...]:
        return self._joined(frozenset(), Counter())

    def _joined(self, untouched: frozenset[int], missed: Counter[int]) -> tuple[Stretch, ...]:
        found = list[Stretch]()
        for piece in self.layout.pieces:
            if piece.tensor in untouched:
                continue
            start, alike = piece.start, (self.groups[piece.tensor], missed[piece.tensor])
            if found and (found[-1].stop, *found[-1][2:]) == (start, *alike):
                start = found.pop().start
            found.append(Stretch(start, piece.stop, *alike))
        return tuple(found)


class Grouped(Optimizer):
    """Several optimizers as one: each steps the elements of its group, at its rate relative to the first group's."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)
    parts: SkipValidation[tuple[Optimizer, ...]]
    """By the number of their group."""
    grouping: SkipValidation[Grouping]
    stretches: SkipValidation[tuple[Stretch, ...]]
    """What a step changes."""
    rates: tuple[float, ...] = ()
    """Factors of the groups' rates; empty: all 1."""

    @property
    def slots(self) -> int:
        return max(part.slots for part in self.parts)

    def new_slots(self, length: int) -> list[Vector]:
        slots = super().new_slots(length)
        for start, stop, group, _ in self.stretches:
            for slot, first in zip(slots, self.parts[group].new_slots(stop - start), strict=False):
                slot[start:stop] = first
        return slots

    def each(self, change: Callable[[Optimizer], Optimizer]) -> "Grouped":
        parts = tuple(part if isinstance(part, Averaged) else change(part) for part in self.parts)
        return Grouped(lr=parts[0].lr, parts=parts, grouping=self.grouping, stretches=self.stretches)

    def within(self, start: int, stop: int) -> "Grouped":
        """The same, which steps only this range of the vector."""
        cut = (Stretch(max(start, one.start), min(stop, one.stop), *one[2:]) for one in self.stretches)
        return self.model_copy(update={"stretches": tuple(one for one in cut if one.start < one.stop)})

    def scaled(self, share: float, alone: float = 1.0) -> float:
        return self.parts[0].scaled(share, alone)

    def spread(self, share: float) -> "Grouped":
        return self.each(lambda part: part.spread(share))

    def decayed(self, share: float) -> "Grouped":
        return self.each(lambda part: part.decayed(share))

    @property
    def has_worker_half(self) -> bool:
        return any(part.has_worker_half for part in self.parts)

    def look_ahead(self, gradient: Vector, weights: Vector, slots: Sequence[Vector], pushes: int) -> None:
        for start, stop, group, late in self.stretches:
            part, here = self.parts[group], slice(start, stop)
            own = [slot[here] for slot in slots[: part.slots]]
            part.look_ahead(gradient[here], weights[here], own, pushes - late)

    def rate(self, group: int, lr: float) -> float:
        """That group's, where the first one's is `lr` by the settings; what is averaged has none."""
        if isinstance(self.parts[group], Averaged):
            return 1.0
        return lr * (self.parts[group].lr / self.lr) * (self.rates[group] if self.rates else 1.0)

    def ascend(self, gradient: Vector) -> None:
        for start, stop, group, _ in self.stretches:
            self.parts[group].ascend(gradient[start:stop])

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
        if out is not weights:
            np.copyto(out, weights)
        for start, stop, group, late in self.stretches:
            part, here = self.parts[group], out[start:stop]
            own = [slot[start:stop] for slot in slots[: part.slots]]
            part.step(here, here, gradient[start:stop], scale, self.rate(group, lr), own, steps - late)

    def still(self) -> "Grouped":
        """The same at a worker, where what is averaged has its value already."""
        parts = tuple(Averaged(is_still=True) if isinstance(part, Averaged) else part for part in self.parts)
        return self.model_copy(update={"parts": parts})

    def of_one(self, members: int) -> "Grouped":
        """The same for one worker's push, folded alone: of what is averaged it has its share. By all of it,
        each after the other, such values would swing about the mean of many workers, further and further."""
        parts = tuple(Averaged(share=1 / members) if isinstance(part, Averaged) else part for part in self.parts)
        return self.model_copy(update={"parts": parts})

    def undone(self, moved: Vector, lr: float) -> Vector:
        """The gradients by which plain steps have moved the weights (before - after); 0 where the rate is, or nothing was
        stepped."""
        found = np.zeros_like(moved)
        for start, stop, group, _ in self.stretches:
            rate = self.rate(group, lr)
            found[start:stop] = np.float32(1 / rate if rate else 0.0) * moved[start:stop]
        return found


def grouped(asked: Optimizer, layout: Layout | None) -> Optimizer:
    """What the settings ask for, on a vector of this layout (None: only to be looked at): as it is where they name no groups.
    ConfigError as `Grouping.of`."""
    if not asked.groups and not asked.averaged:
        return asked
    parts = (*asked.members, Averaged()) if asked.averaged else asked.members
    grouping = Grouping(Layout((), ()), (), len(parts)) if layout is None else Grouping.of(asked, layout)
    return Grouped(lr=asked.lr, parts=parts, grouping=grouping, stretches=grouping.stretches())


def _with(optimizer: Optimizer, options: dict[str, Any]) -> Optimizer:
    """The same with other options; ConfigError where it can't have these."""
    try:
        return type(optimizer)(**optimizer.model_dump(by_alias=True, exclude_unset=True) | options)
    except ValidationError as error:
        raise ConfigError("\n".join(registry.explain(error, type(optimizer), "optimizer."))) from error


def _unmatched(key: str, pattern: str, names: Sequence[str]) -> ConfigError:
    some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return ConfigError(
        f"{key}.parameters: no trained parameter is called '{pattern}'. The model has {some}. Name one of them, "
        "or give a pattern like '*.bias'."
    )
