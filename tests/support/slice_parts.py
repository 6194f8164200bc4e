"""The parts that a slice is made of, each by itself: clocks with seats, a server's half of a policy, pushes."""

from collections.abc import Sequence

import numpy as np

from paceline.core.optimizers.builtin.sgd import Sgd
from paceline.core.policies.clocks import Clocks
from paceline.core.policies.policy import build_policy
from paceline.core.settings.config import Options, ScheduleConfig
from paceline.core.slice.dense_folding import DenseFolding
from paceline.core.slice.server_half import ServerHalf
from paceline.core.values import Base, Dense, Outcome, Push, Seat, Update, Verdict, View

PLAIN = Sgd(lr=0.1, momentum=0.0, weight_decay=0.0)


def clocks_with(**seats: Seat) -> Clocks:
    """Clocks of a slice with these members, in view 1."""
    clocks = Clocks()
    clocks.take_view(View(1, seats))
    return clocks


def half_of(policy: str, length: int = 2, **options: object) -> ServerHalf:
    """The server's half of a policy, with plain SGD at rate 0.1."""
    built = build_policy(Options(name=policy, **options))
    return ServerHalf(length, built, PLAIN, ScheduleConfig(lr_scale="none"), 1.0, None)


def dense_folding(clocks: Clocks, half: ServerHalf, weights: Sequence[float] = (0.0, 0.0)) -> DenseFolding:
    """A folding that has taken these weights."""
    folding = DenseFolding(len(weights), clocks, half)
    folding.start(np.array(weights, np.float32), 0)
    return folding


def a_push(worker: str = "a", clock: int = 1, update: Update | None = None, base: Base | None = None) -> Push:
    """A push of one example, by default of two ones."""
    return Push(worker, 1, clock, update or Dense(np.ones(2, np.float32)), 1, base or Base(1, 0), 1, 0.0)


def counted(clocks: Clocks, push: Push, outcome: Outcome = Outcome.BUFFERED) -> Push:
    """The push, once the clocks have counted it."""
    clocks.advance(push, Verdict(outcome), 0, 0.1)
    return push
