"""SHAT: no worker waits; each mixes in the global model according to its staleness and the number of workers."""

import math
from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy


class Shat(Policy):
    """Scale and Heterogeneity aware Asynchronous Training [SHAT eq. 3, 4]: the server folds as ASP; the worker takes its
    step u = w_i - lr g, then w_i <- (1 - a) u + a w with a = clip(1 - 1 / (s ln n), alpha_min, 1), s = n / c for c
    pushes by others. The paper's text lost the operators of equation 4, so this is a reading; papers/docs/shat.md compares
    it with others. `alpha_min` is ours."""

    shorthand: ClassVar[str | None] = "alpha"
    variant: Literal["log", "root"] = Field("log", description="Denominator: ln n, or sqrt n (SHAT-Root).")
    reading: Literal["complement", "difference", "reciprocal"] = Field(
        "complement", description="Equation 4 as 1 - 1/(s ln n), as 1 - s/ln n, or as 1/(s ln n)."
    )
    count: Literal["literal", "inclusive"] = Field("literal", description="s = n/c as in the paper, or n/(c+1).")
    alpha_min: float = Field(0.25, ge=0, le=1, description="Smallest weight of the global model; the paper's is 0.")
    fixed: float | None = Field(None, ge=0, le=1, alias="alpha", description="A constant weight instead (eq. 3).")
    local_step: Literal["plain", "optimizer", "none"] = Field(
        "plain", description="The worker's own step: plain SGD, one of the run's optimizer, or none (Algorithm 1)."
    )

    @property
    def takes_local_step(self) -> bool:  # type: ignore[override]
        return self.local_step == "plain"

    @property
    def both_step(self) -> bool:  # type: ignore[override]
        return self.local_step == "optimizer"

    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        return optimizer if self.both_step else None

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """Measured with SGD's momentum on a CNN."""
        if floor := self.idles(members):
            return f"{floor}; set policy.alpha or policy.reading, or take another number of workers"
        if optimizer.adaptive or not getattr(optimizer, "momentum", 0.0) or members < 4:
            return ""
        if self.local_step == "plain":
            return "its workers' own steps are plain ones, which lag behind those with momentum at the servers"
        return "its workers' models are mixed with older ones, and lag behind those with momentum at the servers"

    def idles(self, members: int) -> str:
        """At its floor the formula says nothing."""
        if self.fixed is not None or members < 2 or self.alpha(members - 1, members) > self.alpha_min:
            return ""
        return (
            f"with {members} equal workers the weight of the global model is at its floor, policy.alpha_min: "
            f"{self.alpha_min:g}"
        )

    def alpha(self, others: int | None, members: int) -> float:
        if others is None or members <= 1:
            return 1.0
        if self.fixed is not None:
            return self.fixed
        pushes = others + 1 if self.count == "inclusive" else others
        scale = math.log(members) if self.variant == "log" else math.sqrt(members)
        return min(1.0, max(self.alpha_min, self._read(pushes / members, scale)))

    def _read(self, waited: float, scale: float) -> float:
        """Equation 4 with waited = 1/s."""
        if self.reading == "complement":
            return 1.0 - waited / scale
        if self.reading == "reciprocal":
            return waited / scale
        return 1.0 - 1.0 / (waited * scale) if waited else self.alpha_min
