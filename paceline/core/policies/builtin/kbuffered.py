"""K-buffered: no worker waits, and every K pushes make one step."""

import math
from typing import ClassVar

from pydantic import Field

from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.values import Outcome, Push, Verdict


class Kbuffered(Policy):
    """n-softsync [Gupta, Zhang 2016], FedBuff [Nguyen et al. 2022]: w <- w - lr * opt(mean of K gradients), from any
    workers. K = 1 is ASP, K = n has BSP's steps without its waiting."""

    sparse: ClassVar[bool] = True
    gathers: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "k"
    k: int | None = Field(None, ge=1, description="Pushes in a step; default: half of the members, rounded up.")
    damped: bool = Field(False, description="Weigh each gradient by 1/sqrt(1 + its staleness), as FedBuff does.")

    def step_pushes(self, members: int) -> float:
        return self.k or max(1, math.ceil(members / 2))

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return Verdict(Outcome.BUFFERED)

    def weight(self, staleness: int) -> float:
        return 1 / math.sqrt(1 + staleness) if self.damped else 1.0

    def is_due(self, clocks: Clocks) -> bool:
        return clocks.buffered >= self.step_pushes(len(clocks.view.seats))

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
