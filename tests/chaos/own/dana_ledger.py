"""`dana` with a ledger in every second weight."""

from collections.abc import Sequence

from paceline.core.policies.builtin.dana import Dana
from paceline.extend import Gathered, Optimizer, Own, Vector


class DanaLedger(Dana):
    """Weights 0, 2, 4, ... add up what workers push there, without rate and momentum; all others are dana's."""

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        sent = super().outgoing(gradient, own)
        if sent is not None and gradient is not None:
            sent[::2] = gradient[::2]
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
