"""Asynchronous Parallel: every push folds at once and nobody waits."""

from typing import ClassVar

from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy


class Asp(Policy):
    """Free running, also known as dense Hogwild [SHAT] [Survey] [Actors]: w <- w - lr * opt(g)."""

    sparse: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
