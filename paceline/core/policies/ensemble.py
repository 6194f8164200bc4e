"""ENSEMBLE: everyone trains alone; the models vote at the end."""

from typing import ClassVar

from paceline.core.clocks import Clocks
from paceline.core.policy import Policy


class Ensemble(Policy):
    """SHAT's other end, alpha = 0 [SHAT eq. 3]: w_i <- w_i - lr g_i. Gradients are still pushed, so the global model is the
    sum of all displacements, which means less the more workers there are: mean and vote of the local ones are scored too."""

    takes_local_step: ClassVar[bool] = True
    scores: ClassVar[tuple[str, ...]] = ("global", "mean", "vote")

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def pulls(self, clock: int) -> bool:
        return False

    def alpha(self, others: int | None, members: int) -> float:
        return 0.0
