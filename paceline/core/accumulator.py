"""The sum of the pushes that fold together, added in worker order so that the bits are always the same."""

from collections.abc import Callable, Sequence

import numpy as np

from paceline.core.policy import Gathered
from paceline.core.values import Dense, Push, Vector, worker_order


class Accumulator:
    """An ordered prefix sum of n_i * g_i: a push is added as soon as all before it in worker order are in, and held until
    then. Memory: one array of the slice's length; held pushes keep their own. Not thread-safe."""

    def __init__(self, length: int) -> None:
        self._total: Vector = np.zeros(length, dtype=np.float32)
        self._held: dict[str, Push] = {}
        self.contributors: dict[str, int] = {}
        """Workers whose push is in the sum or held for it, and not folded yet, and its examples."""
        self.pushes = 0
        self.examples = 0

    def add(self, push: Push) -> None:
        """Keeps the push until its turn; at most one for each worker."""
        self._held[push.worker] = push
        self.contributors[push.worker] = push.examples

    def holds(self, worker: str) -> bool:
        """Whether this worker's values are still needed."""
        return worker in self._held

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Adds held pushes in worker order up to the first expected worker that has not pushed yet."""
        for worker in sorted({*expected, *self._held}, key=worker_order):
            if worker in self._held:
                self._sum(self._held.pop(worker))
            elif worker in expected and not has_pushed(worker):
                return

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """The worker whose push the sum waits for."""
        return next((worker for worker in expected if not has_pushed(worker)), None)

    def close(self) -> Gathered | None:
        """The sum of all that was added, which starts anew; None where there was nothing. Use it before the next `add`."""
        self.advance((), lambda worker: True)
        pushes, examples = self.pushes, self.examples
        self.pushes = self.examples = 0
        self.contributors.clear()
        return Gathered(self._total, 1.0 / examples, pushes, examples) if examples else None

    def _sum(self, push: Push) -> None:
        from paceline.core import kernels

        if not isinstance(push.update, Dense) or push.examples == 0:
            return
        combine = kernels.add_scaled if self.examples else kernels.scale_into
        combine(self._total, push.update.values, push.examples)
        self.pushes += 1
        self.examples += push.examples
