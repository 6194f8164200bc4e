"""What a worker keeps of an optimizer itself, where other workers' steps come between its steps."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from paceline.core.optimizers.layout import Stretch
from paceline.core.values import Vector

if TYPE_CHECKING:
    from paceline.core.optimizers.groups import Grouping
    from paceline.core.optimizers.optimizer import Optimizer


class WorkerHalf:
    """Makes of each gradient the direction that the worker pushes, by memory of those before (`Optimizer.look_ahead`);
    the servers take plain steps. Not thread-safe."""

    def __init__(self, parts: "Sequence[Optimizer]", grouping: "Grouping | None" = None) -> None:
        """`parts`: the optimizer, or those of its groups; `grouping`: where the groups lie."""
        self.parts = parts
        self._grouping = grouping
        self._slots: list[Vector] = []
        self._pushes = 0
        self._missed: Counter[int] = Counter()
        """Pushes in which each tensor was left alone, by its number."""

    def after(self, before: "WorkerHalf | None") -> Self:
        """Returns this one, which goes on with the memory of the one before."""
        if before is not None:
            self._slots = before._slots
            self._pushes = before._pushes
            self._missed = before._missed
        return self

    def look_ahead(
        self, gradient: Vector, weights: Vector, grouping: "Grouping | None" = None, untouched: Sequence[int] = ()
    ) -> None:
        """Makes what is pushed of a gradient, in its place. `weights`: those that it was computed on; `untouched`: the
        tensors of the grouping that the gradient leaves alone."""
        most = max(self.parts, key=lambda part: part.worker_slots)
        if len(self._slots) < most.worker_slots:  # the first push, or a momentum that was 0
            self._slots += most.new_worker_slots(len(gradient))[len(self._slots) :]

        self._pushes += 1
        where = grouping or self._grouping
        found = (Stretch(0, len(gradient)),) if where is None else where.stretches(untouched, self._missed)
        self._missed.update(untouched)
        for start, stop, group, late in found:
            here = slice(start, stop)
            own = [slot[here] for slot in self._slots]
            self.parts[group].look_ahead(gradient[here], weights[here], own, self._pushes - late)
