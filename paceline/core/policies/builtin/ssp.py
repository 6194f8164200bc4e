"""Stale Synchronous Parallel: workers run ahead of the slowest by at most a bound."""

from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy, Times


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

    def throughput(self, times: Times) -> float:
        """A worker begins a clock once it has ended its last one, and all others the one `bound` + 1 before that."""
        ends = np.zeros((len(times) + 1, times.shape[1]))
        for clock, took in enumerate(times):
            ends[clock + 1] = np.maximum(ends[clock], ends[max(0, clock - self.bound)].max()) + took
        return float(times.size / ends[-1].max())
