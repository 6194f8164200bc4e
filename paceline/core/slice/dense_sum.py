"""The sum of the pushes that fold together; in rounds added in worker order, so that the bits are always the same."""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from paceline.core.policies.policy import Gathered
from paceline.core.slice.state import SliceState
from paceline.core.values import AS_SET, Dense, GroupOption, Manner, Push, Sparse, Vector, together, worker_order


class DenseSum:
    """A sum of n_i * weight * g_i. Ordered: a prefix sum. A push is kept until all before it in worker order are in the sum,
    then added; at most one push of each worker. Unordered: a running sum in order of arrival.
    Memory: one array of the slice's length; pushes that are kept have their own. Not thread-safe."""

    def __init__(self, length: int, ordered: bool, norm: Callable[[Vector], float] | None = None) -> None:
        """`norm`: of a gradient, where AdaScale needs it."""
        self.total: Vector = np.zeros(length, dtype=np.float32)
        self._ordered = ordered
        self._held: dict[str, Push] = {}
        self.contributors: dict[str, int] = {}
        """Ordered: workers whose push is in the sum or kept for it, and not folded yet, and the examples that it counts."""
        self.pushes = 0
        self.examples = 0
        self._counted = 0
        """Those of the examples that no earlier push has counted."""
        self.manners: list[Manner] = []
        """How the optimizer should step with each push in the sum."""
        self._norm = norm
        self.squares = None if norm is None else 0.0
        """Sum of the squared norms of the gradients, for AdaScale; None where nobody needs it."""

    @property
    def open_examples(self) -> int:
        """Examples that the pushes count which are not folded yet."""
        return sum(self.contributors.values()) if self._ordered else self._counted

    def add(self, push: Push, weight: float) -> None:
        """Ordered: keeps the push until its turn. Unordered: adds it."""
        if not self._ordered:
            self._sum(push, weight)
            return
        self._held[push.worker] = push
        self.contributors[push.worker] = push.counted

    def needs(self, worker: str) -> bool:
        """Whether this worker's values are still needed."""
        return worker in self._held

    def advance(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> None:
        """Adds the pushes that were kept in worker order up to the first expected worker that has not pushed yet."""
        for worker in sorted({*expected, *self._held}, key=worker_order) if self._held else ():
            if worker in self._held:
                self._sum(self._held.pop(worker), 1.0)
            elif worker in expected and not has_pushed(worker):
                return

    def next_in_order(self, expected: Sequence[str], has_pushed: Callable[[str], bool]) -> str | None:
        """The worker whose push the sum waits for."""
        return next((worker for worker in expected if not has_pushed(worker)), None) if self._ordered else None

    def close(self, members: int) -> Gathered | None:
        """Returns the sum of all pushes and starts a new one; None if there were none. Use the result before the next `add`."""
        self.advance((), lambda worker: True)
        pushes, examples = self.pushes, self.examples
        self.pushes = self.examples = self._counted = 0
        self.contributors.clear()
        manner = together(self.manners)
        self.manners.clear()
        return Gathered(self.total, 1.0 / examples, pushes, examples, members, manner=manner) if examples else None

    # snapshots
    @property
    def changing(self) -> dict[str, Vector]:
        return {"gathered": self.total}

    @property
    def shares(self) -> dict[str, Sparse]:
        return {}

    @property
    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"gathered": [self.pushes, self.examples, self.open_examples]}
        if any(manner != AS_SET for manner in self.manners):
            found["manners"] = [asdict(manner) for manner in self.manners]
        if self.squares is not None:
            found["squares"] = self.squares
        return found

    def restore(self, state: SliceState) -> None:
        """A snapshot of an older release has neither manners nor squares."""
        assert state.gathered is not None
        table, self.total = state.table, state.gathered
        self.pushes, self.examples, *counted = table["gathered"]
        (self._counted,) = counted or [self.examples]
        self.manners = [_manner(each) for each in table.get("manners", ())] or [AS_SET] * self.pushes
        if self.squares is not None:
            self.squares = table.get("squares", 0.0)

    def _sum(self, push: Push, weight: float) -> None:
        from paceline.core import kernels

        if not isinstance(push.update, Dense) or push.examples == 0:
            return
        values = push.update.values
        combine = kernels.add_scaled if self.examples else kernels.scale_into
        combine(self.total, values, push.examples * weight)
        if self._norm is not None and self.squares is not None:
            self.squares = self._norm(values) ** 2 + (self.squares if self.pushes else 0.0)
        self.manners.append(push.manner)
        self.pushes += 1
        self.examples += push.examples
        self._counted += push.counted


def _manner(facts: dict[str, Any]) -> Manner:
    """That of one push in a sum; earlier snapshots have no options."""
    options = (GroupOption(group, name, tuple(values)) for group, name, values in facts.get("options", ()))
    return Manner(tuple(facts["rates"]), tuple(facts["untouched"]), tuple(options))
