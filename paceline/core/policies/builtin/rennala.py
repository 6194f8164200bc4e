"""Rennala: steps on B fresh gradients from any workers; stale ones are dropped."""

import math
from typing import ClassVar

from pydantic import Field

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Policy, unless_old
from paceline.core.values import Push, Verdict


class Rennala(Policy):
    """[Tyurin, Richtarik 2023]: gradients of the current version are averaged, B at a time; fast workers give several,
    and no worker waits."""

    gathers: ClassVar[bool] = True
    shorthand: ClassVar[str | None] = "b"
    b: int | None = Field(None, ge=1, description="Gradients in a step; default: half of the members, rounded up.")

    def step_pushes(self, members: int) -> float:
        return self.b or max(1, math.ceil(members / 2))

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "gradients that come late are left out, though their examples count"

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        return unless_old(push, clocks)

    def is_due(self, clocks: Clocks) -> bool:
        return clocks.buffered >= self.step_pushes(len(clocks.view.seats))

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True
