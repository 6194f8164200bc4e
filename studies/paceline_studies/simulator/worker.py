"""A worker in virtual time: what it has and what it is about, between two events."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from paceline.core.optimizers.clip import Clip
from paceline.core.optimizers.optimizer import OwnSteps
from paceline.core.optimizers.worker_half import WorkerHalf
from paceline.core.policies.policy import Own, Policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.values import Base, Reply, Vector
from paceline.data.sampler import Sampler


@dataclass(slots=True, eq=False)
class Worker:
    """One worker, between two events. Times are those of the pace."""

    name: str
    rank: int
    in_force: PolicyInForce
    clip: Clip
    sampler: Sampler
    own: Own
    goings: Iterator[tuple[float, float]]
    half: WorkerHalf | None = None
    stepper: OwnSteps | None = None
    """Of own steps; None where the policy has none."""
    own_rate: float = 1.0
    """The factor of the servers' rate for these."""
    incarnation: int = 1
    """0 while it is away: what was under way for it counts no more."""
    clock: int = 0
    gradient: Vector | None = None
    bases: list[Base] = field(default_factory=list)
    replies: list[tuple[int, Reply, Vector]] = field(default_factory=list)
    """By server, with the weights that came."""
    returning: int = 0
    """Servers whose weights have come since it is back."""
    counted: float = 0.0
    """When the chief took its last push."""
    began: float = 0.0
    """When its last push went out, or its last gradient was computed."""
    is_sending: bool = False
    """Its last push has no answer yet."""
    computes_until: float = 0.0
    """When all mini-batches of its present clock will be computed."""
    asked: float | None = None
    """When it asked for the weights that it is to begin with, until it has them from all servers."""
    ready: float = 0.0
    """When its last push was with the last server, or its last gradient was computed."""
    held: float = 0.0
    """How long the policy has let its present push wait; of several servers, the longest."""
    batch_from: float = 0.0
    """When it began to compute its newest mini-batch."""
    batch_until: float = 0.0
    compute: float = 0.0
    pushed: float = 0.0
    waited: float = 0.0
    pulled: float = 0.0
    squares: float = 0.0
    """Of the times that its steps took without waiting."""
    accounted: float = 0.0
    """The sum of these times."""
    stale: int = 0
    """The sum over its pushes (versions)."""
    most_stale: int = 0

    @property
    def policy(self) -> Policy:
        """The one in force."""
        return self.in_force.policy
