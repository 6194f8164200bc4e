"""A policy answers: when may a worker go on, how do pushes fold in, how do pulls mix back?"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import ConfigDict, PrivateAttr

from paceline.core import registry
from paceline.core.errors import ConfigError
from paceline.core.folders import PEERS, POLICIES
from paceline.core.optimizers.clip import Clip
from paceline.core.optimizers.effective import Scaled
from paceline.core.optimizers.groups import Grouping
from paceline.core.optimizers.optimizer import Optimizer, OwnSteps, build_optimizer
from paceline.core.policies.clocks import Clocks
from paceline.core.settings.codec import Pushes
from paceline.core.settings.config import Config, Options
from paceline.core.values import AS_SET, Manner, Outcome, Push, Vector, Verdict

PACKAGE = POLICIES
Times = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Gathered:
    """The pushes of one fold: their sum, and the factor that makes it the gradient (1 / examples of a mean)."""

    total: Vector
    scale: float
    pushes: int
    examples: int
    members: int = 1
    """Members of the slice's view at this fold."""
    worker: str = ""
    """The worker of a single push."""
    manner: Manner = AS_SET
    """The combined manner of all the pushes (`together`)."""


@dataclass(slots=True, eq=False)
class Own:
    """A worker's own state: its model, and the means to step it between two pushes."""

    local: Vector
    optimizer: Optimizer
    """The run's optimizer; its `weight_decay` and the like apply even if the worker takes no steps with it."""
    lr: float
    """The schedule's rate in the last reply."""
    start: Vector | None = None
    """The model at the last mix, kept for policies that push the change since then."""
    slots: list[Vector] = field(default_factory=list)
    steps: int = 0
    grouping: Grouping | None = None
    """The group of each parameter; None if nothing needs it."""
    manner: Manner = AS_SET
    """How to step with the last gradient."""
    clip: Clip | None = None
    """Limits of the gradient that a step is on."""
    missed: Counter[int] = field(default_factory=Counter)
    """Own steps in which each tensor was left out, by the tensor's number."""

    def step(self, optimizer: OwnSteps, gradient: Vector, scale: float = 1.0) -> None:
        """Takes one step on the own model, in the gradient's manner; a script's own optimizer knows the manner itself."""
        self.steps += 1
        if self.clip is not None and self.clip.limits:
            gradient = gradient.copy()  # others may still get it
            self.clip.hold([gradient] if self.grouping is None else self.grouping.weights(gradient), scale)
        if self.grouping is not None and isinstance(optimizer, Optimizer):
            if len(self.slots) < optimizer.slots:  # a momentum that was 0
                self.slots += optimizer.new_slots(len(self.local))[len(self.slots) :]
            optimizer = self.grouping.in_manner(optimizer, self.manner, self.missed)
        optimizer.step(self.local, self.local, gradient, scale, self.lr, self.slots, self.steps)

    @property
    def rate(self) -> float:
        """The rate of plain steps, in the gradient's manner; plain steps have no group rates."""
        return self.lr * self.manner.rates[0] if self.manner.rates else self.lr


class Policy(Scaled, ABC):
    """One synchronisation policy, both halves. Fields are its options; one instance serves one slice or one worker.
    Not thread-safe: the slice's driver serialises calls."""

    model_config = ConfigDict(extra="forbid")
    shorthand: ClassVar[str | None] = None
    """The option that 'name:value' sets on the command line."""
    rounds: ClassVar[bool] = False
    """Whether pushes belong to rounds that close together; progress is then the round's number."""
    gathers: ClassVar[bool] = False
    """Whether BUFFERED pushes are summed as they come, outside of rounds."""
    lock_step: ClassVar[bool] = False
    """Whether a worker's reply waits until others have made as many pushes."""
    bounds_lead: ClassVar[bool] = False
    """Whether a worker waits once it is some clocks ahead of the slowest."""
    waits_on: ClassVar[Literal["any push", "version", "slowest"]] = "any push"
    """What must change before `may_proceed` can become true for a worker that waits: the slice's version, the progress of the
    slowest, or nothing but a push or a view. Not inherited: a policy with its own rule says its own."""
    overlaps: ClassVar[bool] = False
    """Whether a worker may compute its next gradient while the last one is on its way."""
    sparse: ClassVar[bool] = False
    """Whether the policy suits sparse updates, which are changes, not gradients, and are summed."""
    pushes: ClassVar[Pushes] = "gradients"
    """What `outgoing` makes; not every codec fits each kind."""
    served: ClassVar[bool] = True
    """Whether there are servers in its runs."""
    alternatives: ClassVar[tuple[str, ...]] = ()
    """Policies that the chief may change to while the run trains, as on the command line, the tightest first
    (core/chief/policy_choice.py)."""
    scores: ClassVar[tuple[str, ...]] = ("global",)
    """Which models are worth scoring: the global one, the mean of the workers' local ones, their vote."""

    @classmethod
    def __pydantic_init_subclass__(cls, **more: Any) -> None:
        super().__pydantic_init_subclass__(**more)
        cls.waits_on = vars(cls).get("waits_on", "any push")

    def step_pushes(self, members: int) -> float:
        return members if self.rounds else 1.0

    @property
    def keeps_together(self) -> bool:
        """Whether all workers make about the same number of steps, whatever their speed."""
        return self.rounds or self.lock_step or self.bounds_lead

    @property
    def steps_on_mean(self) -> bool:
        return self.lock_step and self.pushes == "gradients"

    @property
    def stays(self) -> bool:
        """Whether its alternatives are only spoken of."""
        return False

    @property
    def changes_itself(self) -> bool:
        """Whether the chief may change to another policy."""
        return bool(self.alternatives) and not self.stays

    @property
    def has_sum(self) -> bool:
        """Whether pushes can wait in a sum."""
        return self.rounds or self.gathers

    @property
    def overwrites(self) -> bool:
        """Whether a worker's later sparse push into a sum replaces the values of its earlier one."""
        return False

    # server half, once for each slice
    def server_optimizer(self, optimizer: Optimizer) -> Optimizer:
        """The optimizer that the slice folds with, given the run's."""
        return optimizer

    def server_arrays(self, workers: int) -> int:
        """Arrays of the slice's length needed besides weights and optimizer: a sum, and its copy in a snapshot."""
        return 1 if self.rounds else 2 if self.gathers else 0

    def admit(self, push: Push, clocks: Clocks) -> Verdict:
        """FOLDED: fold it now. BUFFERED: keep it in the sum until `is_due`, which needs `rounds` or
        `gathers`. DROPPED: don't use it."""
        return Verdict(Outcome.FOLDED)

    def observe(self, push: Push, clocks: Clocks) -> None:
        """Notes a push that has just been counted; a policy changes its state nowhere else."""

    def weight(self, staleness: int) -> float:
        """The weight of a buffered push in the sum, on top of its examples."""
        return 1.0

    def is_due(self, clocks: Clocks) -> bool:
        """Whether the buffered pushes fold now."""
        return False

    def rate(self, lr: float, staleness: int, members: int) -> float:
        """The rate of one push's fold, given the schedule's."""
        return lr

    def fold(
        self,
        weights: Vector,
        out: Vector,
        gathered: Gathered,
        optimizer: Optimizer,
        lr: float,
        slots: Sequence[Vector],
        steps: int,
    ) -> None:
        """Writes the next version of the weights to `out` (which may be `weights`): one optimizer step by default, the
        `steps`-th of the slice."""
        optimizer.step(weights, out, gathered.total, gathered.scale, lr, slots, steps)

    def sent(self, worker: str, weights: Vector, clocks: Clocks) -> None:
        """Called when the worker's reply goes out with these weights; copy them to keep them."""

    @abstractmethod
    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        """Whether the worker's reply goes out now. Called repeatedly for waiting workers, so it changes nothing."""

    # worker half
    takes_local_step: ClassVar[bool] = False
    """Whether the worker makes its own plain step before it mixes."""
    both_step: ClassVar[bool] = False
    """Whether workers make own steps with the run's optimizer on gradients with which the servers make theirs, too."""
    keeps_start: ClassVar[bool] = False
    """Whether the worker keeps the model of its last mix."""

    def worker_optimizer(self, optimizer: Optimizer) -> Optimizer | None:
        """The optimizer for the worker's own steps after each mini-batch; None if only the servers step."""
        return None

    @property
    def most_steps(self) -> int:
        """Mini-batches of data reserved for each clock."""
        return 1

    def local_steps(self, speed: float) -> int:
        """Mini-batches before the next push, from 1 to `most_steps`; `speed` is the worker's, relative to the fastest."""
        return self.most_steps

    def pulls(self, clock: int) -> bool:
        """Whether the reply to this clock's push should bring weights."""
        return True

    def outgoing(self, gradient: Vector | None, own: Own) -> Vector | None:
        """What the worker pushes, given its last gradient (None: no usable one); None for an empty update. The values may be
        in the policy's memory or the gradient's, and must not change until the reply arrives."""
        return gradient

    def alpha(self, others: int | None, members: int) -> float:
        """Weight of the pulled weights in the worker's local model: 1 copies, 0 keeps the local model.
        `others`: pushes by others since this worker's last one, None for its first push after a join."""
        return 1.0

    # what it is worth
    def throughput(self, times: Times) -> float:
        """Foretells the pushes of all workers in a second, where nothing but the policy lets them wait. `times`: what clocks
        take each of them without waiting (clocks x workers; seconds)."""
        members = times.shape[1]
        if not (self.rounds or self.lock_step):
            return float(np.sum(1 / times.mean(axis=0)))
        needed = round(self.step_pushes(members))
        return float(needed / np.sort(times, axis=1)[:, needed - 1].mean())

    def idles(self, members: int) -> str:
        """What makes the policy useless with this many equal workers, in words without a full stop; empty: nothing."""
        return ""

    # snapshots
    def state(self) -> dict[str, Any]:
        """The state that a snapshot needs besides the options, as plain JSON values."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Restores what `state` returned."""


def unless_old(push: Push, clocks: Clocks) -> Verdict:
    """BUFFERED if the gradient was computed on the current version, otherwise DROPPED."""
    is_old = push.base.version != clocks.version
    return Verdict(Outcome.DROPPED, "old_version") if is_old else Verdict(Outcome.BUFFERED)


class Unserved(Policy):
    """The chief's half of a run without servers: it counts the training. Each worker has its own model."""

    served: ClassVar[bool] = False
    scores: ClassVar[tuple[str, ...]] = ("mean",)
    _peers: Scaled = PrivateAttr()
    """The workers' half."""

    def of(self, peers: Scaled) -> "Unserved":
        """The chief's half of this peer policy."""
        self._peers = peers
        return self

    @property
    def plain(self) -> bool:  # type: ignore[override]
        return self._peers.plain

    def step_pushes(self, members: int) -> float:
        return self._peers.step_pushes(members)

    @property
    def averages(self) -> bool:  # type: ignore[override]
        return self._peers.averages

    @property
    def same_steps(self) -> bool:  # type: ignore[override]
        return self._peers.same_steps

    @property
    def steps_on_mean(self) -> bool:
        return self._peers.steps_on_mean

    @property
    def keeps_together(self) -> bool:
        return self._peers.waits

    def caution(self, optimizer: Optimizer, members: int) -> str:
        return self._peers.caution(optimizer, members)

    @property
    def worker_momentum(self) -> bool:  # type: ignore[override]
        return self._peers.worker_momentum

    def may_proceed(self, worker: str, clocks: Clocks) -> bool:
        return True

    def pulls(self, clock: int) -> bool:
        return False


def is_served(options: Options) -> bool:
    """Whether the policy needs servers; the others are peer policies."""
    if options.name in registry.names(PACKAGE):
        return True
    if options.name in registry.names(PEERS):
        return False
    return issubclass(registry.find(PACKAGE, Scaled, options.name), Policy)


def build_policy(options: Options) -> Policy:
    """The policy that the config names, its options checked; of a peer policy the chief's half."""
    if not is_served(options):
        return Unserved().of(registry.build(PEERS, Scaled, options.name, options.options, "policy"))
    return registry.build(PACKAGE, Policy, options.name, options.options, "policy")


def alternatives_of(policy: Options) -> list[Options]:
    """The policies that the chief may change to from this one, the tightest first."""
    return [Options(**from_shorthand(each)) for each in build_policy(policy).alternatives]


def policies_that(fit: Callable[[type[Policy]], bool]) -> str:
    """The built-in policies with servers that fit, for messages."""
    return registry.listed(name for name in registry.names(PACKAGE) if fit(registry.find(PACKAGE, Policy, name)))


def push_batches(config: Config) -> int:
    """Mini-batches behind one sparse push."""
    each = build_policy(config.policy).lock_step or build_optimizer(config.optimizer).sparse
    return config.svm.batches or config.svm.own_batches(config.workers, config.worker_batch, each)


def from_shorthand(text: str) -> dict[str, Any]:
    """'ssp:3' as {'name': 'ssp', 'bound': 3}; ConfigError if the policy has no short form."""
    name, colon, value = text.partition(":")
    shorthand = registry.find(PACKAGE, Policy, name).shorthand if is_served(Options(name=name)) else None
    if not colon:
        return {"name": name}
    if shorthand is None:
        raise ConfigError(f"policy {text}: {name} takes no value after ':'.")
    if ":" in value:
        raise ConfigError(
            f"policy {text}: expected one value, like {name}:3; set other options with policy.OPTION=VALUE."
        )
    return {"name": name, shorthand: value}
