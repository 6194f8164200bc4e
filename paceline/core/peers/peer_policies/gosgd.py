"""GoSGD: after a step everybody now and then sends its model, with half of its weight, to a random other; nobody waits."""

import math
from typing import ClassVar

from pydantic import Field

from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.peers.peer_policy import Kind, Message, PushSum
from paceline.core.values import Vector


class Gosgd(PushSum):
    """[SHAT; Blot et al. 2016]: x_s <- x_s - lr * g; with a probability, w_s <- w_s / 2 and (x_s, w_s) goes to a random r:
    x_r <- (w_r x_r + w_s x_s) / (w_r + w_s), w_r <- w_r + w_s."""

    kinds: ClassVar[frozenset[Kind]] = frozenset({"model"})
    usual_topology: ClassVar[str] = "complete"
    probability: float = Field(0.1, gt=0, le=1, description="Share of the steps after which the model is sent (ratio).")

    def step_pushes(self, members: int) -> float:
        """Models meet too seldom to take a whole mini-batch's rate on a small one."""
        return math.sqrt(members)

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return "workers' models meet seldom; policy.probability=1 lets them meet after each step"

    def _push(self, gradient: Vector | None) -> list[Message]:
        if gradient is not None:
            self._descend(gradient)
        neighbours = self._topology.neighbours(self._group.members, self._rank)
        if not neighbours or self._random.random() >= self.probability:
            return []
        return [self._half(self._random.choice(neighbours))]

    def _take(self, message: Message) -> list[Message]:
        self._mix(message)
        return []
