"""Staleness-aware rate: ASP in which a late gradient counts less."""

from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy


class StalenessAware(Policy):
    """[Zhang et al. 2016]: lr / max(1, tau). `damp: outliers` is the delay-adaptive form, lr * min(1, n / max(1, tau)), which
    does not change the steps of n equal workers."""

    sparse: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "damp"
    damp: Literal["all", "outliers"] = Field("all", description="Which pushes get a lower rate.")

    def divides(self, members: int) -> float:
        """The staleness of equal workers' pushes."""
        return max(1, members - 1) if self.damp == "all" else 1.0

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """With more workers, each one has less of the data."""
        return (
            "what comes late counts less, so the data of the slower of two workers hardly counts"
            if members == 2
            else ""
        )

    def rate(self, lr: float, staleness: int, members: int) -> float:
        return lr / max(1, staleness) if self.damp == "all" else lr * min(1.0, members / max(1, staleness))

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
