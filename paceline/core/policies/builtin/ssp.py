"""Stale Synchronous Parallel: workers run ahead of the slowest by at most a bound."""

from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy


class Ssp(Policy):
    """Bounded staleness [Survey; Ho et al. 2013]: fold at once; worker p waits while t_p - min t > bound."""

    sparse: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "bound"
    overlaps: ClassVar[bool] = True
    bounds_lead: ClassVar[bool] = True
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "slowest"
    bound: int = Field(3, ge=0, description="Clocks a worker may be ahead of the slowest when it goes on.")

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return clocks.lead(worker) <= self.bound
