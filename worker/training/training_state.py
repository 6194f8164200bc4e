"""What one worker trains with, and what changes while it does."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from paceline.core.steps.clip import Clip
from paceline.core.steps.effective import Pool, effective
from paceline.core.steps.momentum import WorkerMomentum
from paceline.core.steps.optimizer import Optimizer
from paceline.core.sync.policy import Own, Policy
from paceline.core.values import Base, Vector
from paceline.data.sampler import Sampler
from paceline.data.shards import Shard
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.training.emulated_slowness import Slowness
from paceline.worker.training.model_and_gradient import Replica
from paceline.worker.training.model_for_readers import LocalModel
from paceline.worker.training.status_and_metrics import Progress


@dataclass
class Training:
    """What one worker trains with."""

    replica: Replica
    client: ParameterClient
    policy: Policy
    asked: Optimizer
    """The run's."""
    pool: Pool | None
    """Who carries out what the run's optimizer is meant for one process to do; None: it is taken as it is."""
    sampler: Sampler
    shards: list[Shard]
    progress: Progress
    slowness: Slowness
    clip: Clip
    seed: int
    place: int
    view: int = 0
    by_speed: bool = False
    """Whether a slower worker takes a smaller part of each mini-batch."""
    switches: int = 0
    """Number of the newest change of policy that this worker knows."""
    shared: LocalModel = field(default_factory=LocalModel)
    """Where others read this worker's model."""
    overlap: bool = False
    """Whether the run's settings ask for computation while a push is on its way."""
    optimizer: Optimizer = field(init=False)
    """What is stepped with in its place under the present policy."""
    pulled: Vector = field(init=False)
    bases: Sequence[Base] = field(init=False)
    """Terms and versions of the servers' weights that are in the local model."""
    own: Own = field(init=False)
    momentum: WorkerMomentum | None = field(init=False, default=None)
    """This worker's, in place of the servers'."""
    stepper: Optimizer | None = field(init=False)
    """What the worker steps its own model with before it pushes."""

    def __post_init__(self) -> None:
        self.pulled = np.empty_like(self.replica.local)
        self.begin(self.policy)

    def begin(self, policy: Policy) -> None:
        """This worker's half of a policy, anew; the model is the one pulled last."""
        self.policy, self.bases = policy, self.client.bases
        self.optimizer = effective(self.pool, self.asked, policy)
        self.momentum = None if self.pool is None else self.pool.momentum(self.asked, policy)
        self.stepper = policy.worker_optimizer(self.optimizer)
        self.own = Own(self.replica.local, self.optimizer, self.client.lr)
        if policy.keeps_start:
            self.own.start = self.replica.local.copy()
        if self.stepper is not None:
            self.own.slots = self.stepper.new_slots(self.replica.length)

    @property
    def overlaps(self) -> bool:
        """Whether the next gradient is computed while a push is on its way: asked for, and the policy allows it."""
        return self.overlap and self.policy.overlaps
