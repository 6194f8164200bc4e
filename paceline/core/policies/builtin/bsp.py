"""Bulk Synchronous Parallel: all members push, one step on the mean, all go on together."""

from typing import ClassVar, Literal

from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.values import Outcome, Push, Verdict


class Bsp(Policy):
    """Lock-step [SHAT] [Survey] [Hogwild]: round v+1 closes when every member has pushed it, then
    w <- w - lr * opt(sum_i n_i g_i / sum_i n_i) and all are released. The slice's version is the round's number."""

    sparse: ClassVar[bool] = True
    rounds: ClassVar[bool] = True
    lock_step: ClassVar[bool] = True
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "version"
    worker_momentum: ClassVar[bool] = False

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        if not push.base.version == clocks.version == clocks.progress(push.worker):
            return Verdict(Outcome.DROPPED, "old_version")
        return Verdict(Outcome.BUFFERED)

    def is_due(self, clocks: Clocks) -> bool:
        return clocks.slowest() > clocks.version

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return clocks.progress(worker) <= clocks.version
