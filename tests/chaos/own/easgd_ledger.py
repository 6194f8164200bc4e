"""`easgd` with a ledger in every second weight."""

from collections.abc import Sequence

from paceline.core.policies.builtin.easgd import Easgd
from paceline.extend import Gathered, Optimizer, Own, Vector


class EasgdLedger(Easgd):
    """Weights 0, 2, 4, ... add up what workers push there; all others are easgd's. In the ledger workers push the gradient of
    their mini-batch (tau is 1) in place of their model."""

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        sent = super().outgoing(gradient, own)
        if sent is not None:
            sent[::2] = 0 if gradient is None else gradient[::2]
        return sent

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
        ledger = weights[::2] - gathered.total[::2]
        super().fold(weights, out, gathered, optimizer, lr, slots, steps)
        out[::2] = ledger
