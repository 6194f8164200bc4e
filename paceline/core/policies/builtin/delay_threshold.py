"""Delay threshold: ASP that drops gradients that come too late."""

from typing import ClassVar

from pydantic import Field

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy
from paceline.core.values import Outcome, Push, Verdict


class DelayThreshold(Policy):
    """Ringmaster ASGD [Maranjyan et al. 2025]: a push with staleness >= R is dropped; its worker continues from fresh weights.
    With n equal workers staleness is n - 1, so R must be at least n to lose nothing; a very slow worker is never used."""

    sparse: ClassVar[bool] = True
    overlaps: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "threshold"
    threshold: int | None = Field(
        None, ge=1, description="R, in versions; default: 4 times the members, a safety valve."
    )

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """With more workers, each one has less of the data."""
        return "what comes very late is left out, so a much slower worker's data hardly counts" if members < 8 else ""

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        is_late = clocks.version - push.base.version >= (self.threshold or 4 * len(clocks.view.seats))
        return Verdict(Outcome.DROPPED, "too_stale") if is_late else Verdict(Outcome.FOLDED)

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
