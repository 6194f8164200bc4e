"""Downpour: ASP that pushes, or pulls, only every k steps."""

from collections import Counter
from dataclasses import replace
from typing import ClassVar

import numpy as np
from pydantic import Field

from paceline.core.optimizers.builtin.sgd import plainly
from paceline.core.optimizers.groups import Grouped
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import Own, Policy
from paceline.core.values import Vector


class Downpour(Policy):
    """ASP with n_push and n_fetch of Dean et al. 2012. `push_every` k: the worker makes k plain local steps, w_i <- w_i - lr *
    g, then pushes sum(g). `pull_every` k [Actors]: only every k-th reply brings the weights."""

    keeps_start: ClassVar[bool] = True
    push_every: int = Field(1, ge=1, description="Mini-batches of own steps between two pushes (steps).")
    pull_every: int = Field(1, ge=1, description="Pushes between two pulls (clocks).")

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        return plainly(optimizer)

    @property
    def most_steps(self) -> int:
        return self.push_every

    def pulls(self, clock: int) -> bool:
        return clock % self.pull_every == 0

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        """The steps were plain ones, so their change is the rate times the sum of their gradients; at rate 0 it is zero. That
        of one step is known exactly, also where it is too small to change a weight."""
        assert own.start is not None
        if gradient is None or (self.push_every == 1 and own.lr):
            return gradient
        moved = own.start - own.local
        plain = plainly(own.optimizer)
        if own.grouping is not None:  # the last step may have left alone what earlier ones have moved
            plain = own.grouping.in_manner(plain, replace(own.manner, untouched=()), Counter())
        if isinstance(plain, Grouped):
            return plain.undone(moved, own.lr)
        return np.float32(1 / own.lr if own.lr else 0.0) * moved
