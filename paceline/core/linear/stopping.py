"""When training ends early: rules that look at one loss after the other, and how close together they must come."""

import math
from abc import ABC, abstractmethod
from collections import deque
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from paceline.core.errors import ConfigError

OMEGA = {"report": 1.0, "authors": 50.0}
"""Most features of a sample that the two presets reckon with: as [Hogwild] says, and as its authors' program has it."""
SETTLING = 0.75
"""Part of a run with fitted steps behind which delta and cs449 look at losses: until then steps are so long that losses go up
and down, and the mean of the versions has hardly begun (ratio)."""
UNSEEN = 3
"""Times in a row that a loss may stay exactly as it is: then no validation batch was seen [Hogwild's authors]."""


def tolerance(gamma: float, omega: float = 1.0, lag: float = 0.0) -> float:
    """The difference between two losses that is small for a learning rate of `gamma` [Hogwild eq. 2; Niu et al. 2011]:
    2 L M^2 omega (1 + 6 rho lag + 4 lag^2 omega sqrt(delta)) gamma / (phi c), with L, M, rho, delta, phi and c as [Hogwild]'s
    authors have them. `omega`: most features of a sample; `lag`: steps of others during a step."""
    lipschitz, bound, rho, delta, phi, convexity = 0.1, 0.1, 0.44, 1.0, 0.9, 0.5
    lagging = 1 + 6 * rho * lag + 4 * lag**2 * omega * math.sqrt(delta)
    return 2 * lipschitz * bound**2 * omega * lagging * gamma / (phi * convexity)


class StoppingRule(ABC):
    """Judges a run by its losses, in their order. Not thread-safe."""

    def add(self, loss: float) -> bool:
        """Whether to stop after an epoch that ended with this loss. ConfigError where it is no number."""
        if not math.isfinite(loss):
            raise ConfigError(f"The loss is {loss}: training has diverged. Lower the learning rate.")
        return self._add(loss)

    @abstractmethod
    def _add(self, loss: float) -> bool:
        """The same for a loss that is a number."""


class Delta(StoppingRule):
    """[Hogwild]: stops when two losses in a row differ by less than `eps`; a difference of exactly 0 is passed over, at most
    three times in a row."""

    def __init__(self, eps: float) -> None:
        self._eps = eps
        self._last = math.inf
        self._unseen = 0

    def _add(self, loss: float) -> bool:
        change = abs(loss - self._last)
        self._last = loss
        self._unseen = self._unseen + 1 if change == 0 else 0
        return change < self._eps and not 0 < self._unseen <= UNSEEN


class Cs449(StoppingRule):
    """The program of [Hogwild]'s authors: stops when a loss is not more than `eps` below the one before, so on any rise,
    too; the first loss is compared with .9."""

    def __init__(self, eps: float) -> None:
        self._eps = eps
        self._last = 0.9

    def _add(self, loss: float) -> bool:
        fall = self._last - loss
        self._last = loss
        return fall <= self._eps


class Window(StoppingRule):
    """Stops when none of the last `length` losses is as low as the lowest one before them."""

    def __init__(self, length: int) -> None:
        self._recent: deque[float] = deque()
        self._length = length
        self._best = math.inf

    def _add(self, loss: float) -> bool:
        self._recent.append(loss)
        if len(self._recent) > self._length:
            self._best = min(self._best, self._recent.popleft())
        return min(self._recent) > self._best


class Stopping(BaseModel):
    """Which rule ends a run early."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    rule: Literal["delta", "cs449", "window"] = Field(
        "delta",
        description="delta: two losses are close [Hogwild]; cs449: the loss fell too little; window: no loss beats an"
        " earlier one.",
    )
    preset: Literal["report", "authors"] = Field(
        "report", description="The omega in the tolerance of delta and cs449: report is 1, the other 50."
    )
    lag: float = Field(
        0, ge=0, allow_inf_nan=False, description="Steps of other workers during a step, for the same tolerance."
    )
    window: int = Field(20, ge=1, description="Losses that window looks at.")

    def looks_at(self, epoch: int, epochs: int, is_fitted: bool) -> bool:
        """Whether the rule needs the loss at the end of this epoch (from 0) of `epochs`."""
        return not is_fitted or self.rule == "window" or epoch + 1 >= SETTLING * epochs

    def build(self, gamma: float) -> StoppingRule:
        """A rule that has seen nothing yet. `gamma`: the learning rate that the tolerance follows."""
        if self.rule == "window":
            return Window(self.window)
        eps = tolerance(gamma, OMEGA[self.preset], self.lag)
        return Delta(eps) if self.rule == "delta" else Cs449(eps)
