"""Asynchronous Parallel: every push folds at once and nobody waits."""

from paceline.core.clocks import Clocks
from paceline.core.policy import Policy


class Asp(Policy):
    """Free running, also known as Downpour or dense Hogwild [SHAT] [Survey] [Actors]: w <- w - lr * opt(g)."""

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
