"""What a worker keeps of an optimizer itself, where other workers' steps come between its steps."""

from collections import Counter
from typing import Self

from paceline.core.optimizers.groups import Grouping
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.values import Manner, Vector


class WorkerHalf:
    """Makes of each gradient the direction that the worker pushes, by memory of those before (`Optimizer.look_ahead`);
    the servers take plain steps. Not thread-safe."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
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
        self, gradient: Vector, weights: Vector, grouping: Grouping | None = None, untouched: tuple[int, ...] = ()
    ) -> None:
        """Makes what is pushed of a gradient, in its place. `weights`: those that it was computed on; `untouched`: the
        tensors of the grouping that the gradient leaves alone."""
        optimizer = self.optimizer
        if len(self._slots) < optimizer.slots:  # the first push, or a momentum that was 0
            self._slots += optimizer.new_slots(len(gradient))[len(self._slots) :]

        self._pushes += 1
        if grouping is not None:
            optimizer = grouping.in_manner(optimizer, Manner(untouched=untouched), self._missed)
        optimizer.look_ahead(gradient, weights, self._slots, self._pushes)
