"""`kbuffered` with a ledger in every second weight."""

from collections.abc import Sequence

from paceline.core.policies.builtin.kbuffered import Kbuffered
from paceline.extend import Gathered, Optimizer, Vector

BATCH = 4
"""Examples of each push, by which the sum weighs it."""


class KbufferedLedger(Kbuffered):
    """Weights 0, 2, 4, ... add up what workers push there, however many pushes a step has (the last one of a run may have
    fewer than k); all others are kbuffered's."""

    def fold(
        self,
        weights: Vector,
        out: Vector,
        gathered: Gathered,
        optimizer: Optimizer,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        ledger = weights[::2] - gathered.total[::2] / BATCH
        super().fold(weights, out, gathered, optimizer, lr, slots, steps)
        out[::2] = ledger
