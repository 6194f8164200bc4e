"""SHAT: no worker waits; each mixes in the global model according to its staleness and the number of workers."""

import math
from typing import ClassVar, Literal

from pydantic import Field

from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.clocks import Clocks
from paceline.core.sync.policy import Policy


class Shat(Policy):
    """Scale and Heterogeneity aware Asynchronous Training [SHAT eq. 3, 4]: the server folds as ASP; the worker takes its
    plain step u = w_i - lr g, then w_i <- (1 - a) u + a w with a = clip(1 - s / ln n, alpha_min, 1), s = n / (c + 1).
    The operators are inferred (the paper's text lost them); the count with +1 and alpha_min are ours."""

    takes_local_step: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "alpha"
    variant: Literal["log", "root"] = Field("log", description="Denominator: ln n, or sqrt n (SHAT-Root).")
    count: Literal["inclusive", "literal"] = Field("inclusive", description="s = n/(c+1), or the paper's n/c.")
    alpha_min: float = Field(0.25, ge=0, le=1, description="Smallest weight of the global model; the paper's is 0.")
    fixed: float | None = Field(None, ge=0, le=1, alias="alpha", description="A constant weight instead (eq. 3).")

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """Measured with Adam and AdamW, and with SGD's momentum on a CNN."""
        momentum = getattr(optimizer, "momentum", 0.0)
        if not optimizer.adaptive and (not momentum or members < 4):
            return ""
        name = "those with momentum" if momentum else f"{optimizer.name}'s"
        return f"its workers' own steps are plain ones, which lag behind {name} at the servers"

    def alpha(self, others: int | None, members: int) -> float:
        if others is None or members <= 1:
            return 1.0
        if self.fixed is not None:
            return self.fixed
        pushes = others + 1 if self.count == "inclusive" else others
        scale = math.log(members) if self.variant == "log" else math.sqrt(members)
        alpha = 1.0 - members / pushes / scale if pushes else self.alpha_min
        return min(1.0, max(self.alpha_min, alpha))
