"""What one worker trains with, what changes while it does, and its model for readers meanwhile."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from paceline.core.chief.leases import NOTHING
from paceline.core.optimizers.builtin.sgd import plainly
from paceline.core.optimizers.clip import Clip
from paceline.core.optimizers.effective import Pool, effective, pool_of
from paceline.core.optimizers.groups import Grouped, Grouping, grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import Optimizer, OwnSteps, build_optimizer
from paceline.core.optimizers.worker_half import WorkerHalf
from paceline.core.policies.policy import Own, Policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Config
from paceline.core.values import Base, GroupOption, Manner, Position, Vector
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.training.emulated_slowness import Slowness
from paceline.worker.training.model_and_gradient import Replica
from paceline.worker.training.status_and_metrics import Progress
from paceline.worker.training.step_result import Step
from paceline.worker.training.way import Item, Items, Streams, Way


@dataclass(frozen=True, kw_only=True)
class StepSettings:
    """What the run's settings ask of each step."""

    optimizer: Optimizer
    """The run's."""
    pool: Pool | None = None
    """Who carries out what the run's optimizer is meant for one process to do; None: it is taken as it is."""
    clip: Clip
    by_speed: bool = False
    """Whether a slower worker takes a smaller part of each mini-batch."""
    overlap: bool = False
    """Whether the next gradient is computed while a push is on its way, where the policy allows it."""

    @classmethod
    def by(cls, config: Config) -> Self:
        """What these settings ask."""
        return cls(
            optimizer=build_optimizer(config.optimizer),
            pool=pool_of(config),
            clip=Clip(config.clip),
            by_speed=config.batch == "speed",
            overlap=config.overlap,
        )


@dataclass(kw_only=True)
class Batches:
    """What a worker's mini-batches are made of."""

    streams: Streams
    way: Way
    seed: int
    """Of the run."""
    pause: Callable[[], object] = lambda: None
    """Waits a moment, since nothing is left just now."""
    epoch: int = 0
    """That of the newest mini-batch."""

    def of(self, clock: int, policy: Policy, speed: float) -> Items:
        """The mini-batches of a clock; of a slow worker fewer, where the policy has it so."""
        lease = self.way.lease(clock - 1, policy.most_steps)
        if lease.stream == NOTHING:
            self.idle(policy)
            return Items(())
        rows = lease.rows(clock)[: policy.local_steps(speed)]
        if rows:
            self.epoch = rows[-1] // self.streams.steps
        return Items((Item(lease.stream, row, (lease.stream, row + 1)) for row in rows), lease.has)

    def idle(self, policy: Policy) -> None:
        """Nothing is left at this clock; in rounds the others wait for its push."""
        if not policy.rounds:
            self.pause()

    def position(self, step: Step | None) -> Position | None:
        """What a push says of where a script is in its data."""
        return None


class LocalModel:
    """Hands the worker's model to readers, never torn: the training loop copies it between two steps, and only where
    somebody asks. Thread-safe."""

    def __init__(self) -> None:
        self._asked: deque[Future[Vector]] = deque()
        self._final: Vector | None = None

    def offer(self, local: Vector) -> None:
        """A step is complete. For the training loop."""
        if self._asked:
            self._answer(local.copy())

    def finish(self, local: Vector) -> None:
        """The model does not change any more, so that readers need no copy. For the training loop."""
        self._final = local
        self._answer(local)

    @property
    def is_final(self) -> bool:
        return self._final is not None

    def read(self, seconds: float) -> Vector | None:
        """The model at the end of the present step; None where that does not come in time. Read only."""
        answer: Future[Vector] = Future()
        self._asked.append(answer)
        if self._final is not None:  # looked up after asking: a worker that finishes meanwhile answers
            return self._final
        try:
            return answer.result(seconds)
        except TimeoutError:
            answer.cancel()
            return None

    def _answer(self, values: Vector) -> None:
        while self._asked:
            answer = self._asked.popleft()
            if answer.set_running_or_notify_cancel():
                answer.set_result(values)


@dataclass(kw_only=True)
class Training:
    """What one worker trains with."""

    replica: Replica
    client: ParameterClient
    in_force: PolicyInForce
    asked: StepSettings
    batches: Batches
    progress: Progress
    slowness: Slowness
    shared: LocalModel = field(default_factory=LocalModel)
    """Where others read this worker's model."""
    view: int = 0
    grouping: Grouping = field(init=False)
    """Which of the optimizer's groups each parameter is in."""
    asker: Optimizer = field(init=False)
    """The run's optimizer, with its groups."""
    plain: Optimizer = field(init=False)
    """Plain steps at its rates."""
    optimizer: Optimizer = field(init=False)
    """What is stepped with in its place under the present policy."""
    pulled: Vector = field(init=False)
    bases: Sequence[Base] = field(init=False)
    """Terms and versions of the servers' weights that are in the local model."""
    own: Own = field(init=False)
    half: WorkerHalf | None = field(init=False, default=None)
    """What this worker keeps of the optimizer, in place of the servers."""
    own_rate: float = field(init=False, default=1.0)
    """Factor of the servers' rate for plain steps on the worker's own model."""
    stepper: OwnSteps | None = field(init=False)
    """What the worker steps its own model with before it pushes."""
    _options: tuple[GroupOption, ...] = field(init=False, default=())
    """Those of the last gradient's manner."""

    def __post_init__(self) -> None:
        self.pulled = np.empty_like(self.replica.local)
        layout = Layout.whole(self.replica.shapes)
        self.grouping = Grouping.of(self.asked.optimizer, layout)
        self.asker = grouped(self.asked.optimizer, layout)
        plain = plainly(self.asker)
        self.plain = plain.still() if isinstance(plain, Grouped) else plain
        self.begin()

    def begin(self) -> None:
        """Starts this worker's half of the current policy again; the model is the one pulled last."""
        policy = self.policy
        self.bases = self.client.bases
        self.half, self._options = None, ()
        self._take(self.asker)
        stepper = policy.worker_optimizer(self.optimizer)
        stepper = stepper.still() if isinstance(stepper, Grouped) else stepper
        self.replica.begins_policy(policy)
        is_pushed = policy.pushes == "gradients"  # so the servers step with what these steps take
        pool = self.asked.pool
        decay = 1.0 if pool is None else pool.decay(self.asker, policy)
        in_place = self.replica.own_steps(None if is_pushed else stepper, decay)
        self.stepper = stepper if in_place is None else in_place
        self.own = Own(self.replica.local, self.optimizer, self.client.lr, grouping=self.grouping)
        if policy.keeps_start:
            self.own.start = self.replica.local.copy()
        if self.stepper is not None:
            self.own.slots = self.stepper.new_slots(self.replica.length)

    def follow(self, manner: Manner) -> None:
        """The last gradient asks to be stepped with so."""
        self.own.manner = manner
        if manner.options != self._options:
            self._options = manner.options
            self._take(self.grouping.changed(self.asker, manner.options))
            self.own.optimizer = self.optimizer

    def _take(self, asked: Optimizer) -> None:
        """Steps with this optimizer, as the policy in force has it."""
        pool = self.asked.pool
        self.optimizer = effective(pool, asked, self.policy)
        half = None if pool is None else pool.half(asked, self.policy)
        self.half = None if half is None else half.after(self.half)
        self.own_rate = 1.0 if pool is None else pool.own_rate(asked, self.policy)

    @property
    def policy(self) -> Policy:
        """The one that is in force."""
        return self.in_force.policy

    @property
    def remembers(self) -> bool:
        """Whether what this worker pushes depends on its earlier gradients, of which it begins with none."""
        half = self.half is not None and self.half.optimizer.slots > 0
        return half or self.policy.own_half or bool(self.own.slots)

    @property
    def overlaps(self) -> bool:
        """Whether the next gradient is computed while a push is on its way: asked for, and the policy allows it."""
        return self.asked.overlap and self.policy.overlaps
