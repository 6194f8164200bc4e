"""The server's half of the policy in force, with everything that depends on it."""

import math
from collections import Counter
from collections.abc import Sequence

from paceline.core.errors import BadPush, ConfigError
from paceline.core.optimizers.clip import Clip, l2_norm
from paceline.core.optimizers.effective import Pool, effective, scheduled
from paceline.core.optimizers.groups import Grouped, Grouping, grouped
from paceline.core.optimizers.layout import Layout
from paceline.core.optimizers.optimizer import Optimizer
from paceline.core.policies.policy import Gathered, Policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import ClipConfig, ScheduleConfig
from paceline.core.slice.copies import NO_COPIES
from paceline.core.slice.rate import Rate
from paceline.core.values import Manner, Switch, Vector


class ServerHalf(PolicyInForce):
    """Keeps the policy with its optimizer, the optimizer's memory and the learning rate. Not thread-safe."""

    optimizer: Optimizer
    """The optimizer that the slice folds with; the rate comes from `rate`."""
    rate: Rate

    def __init__(
        self,
        length: int,
        policy: Policy,
        asked: Optimizer,
        schedule: ScheduleConfig,
        epochs: float,
        pool: Pool | None,
        layout: Layout | None = None,
        clip: ClipConfig | None = None,
    ) -> None:
        """`length`: values of the slice. `asked`: the run's optimizer. The others as `ModelSlice` takes them."""
        super().__init__(policy)
        self._length = length
        self._grouping = None if layout is None else Grouping.of(asked, layout)
        if layout is None and (asked.groups or asked.averaged):
            raise ConfigError("A slice that steps parameter groups needs their layout.")
        self._asked = grouped(asked, layout)
        self._averages = bool(asked.averaged)
        self._clip = Clip(clip or ClipConfig(), "mean")
        self._schedule = schedule
        self._epochs = epochs
        self._pool = pool
        self.slots: list[Vector] = []
        """The optimizer's memory. It is kept if the next policy's optimizer has as many arrays."""
        self.copies = NO_COPIES
        """Copies for a snapshot that is being taken. Call `finish` on them before you change the slots or other arrays in
        it."""
        self.steps = 0
        """Optimizer steps taken since its memory began."""
        self.missed: Counter[int] = Counter()
        """Steps in which each tensor was left out, by the tensor's number in the plan."""
        self._begin()

    def check_manner(self, worker: str, manner: Manner, lr: float) -> None:
        """Raises BadPush if a push names tensors or groups that the slice does not have, or options that the optimizer can't
        have at the rate `lr`. What each number may be by itself is checked where the push comes in (rpc/bounds.py)."""
        grouping = self._grouping
        groups, tensors = (1, 0) if grouping is None else (grouping.count, len(grouping.groups))
        if len(manner.rates) not in (0, groups):
            raise BadPush(
                f"{worker} pushed {len(manner.rates):,} rates; expected {groups}, one for each group of the optimizer. "
                "Describe the optimizer alike on all workers."
            )
        if (last := max(manner.untouched, default=-1)) >= tensors:
            raise BadPush(f"{worker} leaves tensor {last:,} alone; the model has {tensors:,}, counted from 0.")
        try:
            changed = self._changed(manner)
        except ConfigError as error:
            raise BadPush(f"{worker} pushed options that the optimizer can't have: {error}") from error

        asked = _pulls(self._asked, lr, (1.0,) * groups)
        for pull, own in zip(_pulls(changed, lr, manner.rates or (1.0,) * groups), asked, strict=True):
            # beyond that each step goes further past zero, whatever the gradient is, so no cap of its norm helps
            if pull > max(1.0, own):
                raise BadPush(
                    f"{worker} pushed a rate and a weight decay whose product is {pull:g}; expected at most 1, or what the "
                    "settings' own make. Nothing was changed. Look at the script's scheduler."
                )

    def optimizer_for(self, manner: Manner, members: int = 0) -> Optimizer:
        """The optimizer for a step in this manner. `members`: where the push of one of these is folded alone."""
        if self._grouping is None:
            return self.optimizer
        stepping = self.optimizer if not manner.options else self._stepping(self._changed(manner))
        if len(self.slots) < stepping.slots:  # a momentum that was 0
            self.slots += stepping.new_slots(self._length)[len(self.slots) :]
        found = self._grouping.in_manner(stepping, manner, self.missed)
        if not members or not self._averages or not isinstance(found, Grouped):
            return found
        return found.of_one(members if self._pool is None else max(members, self._pool.workers))  # some may be away

    def clip(self, gathered: Gathered) -> None:
        """Scales the sum down, in place, where the norm of the mean gradient is above its limit."""
        self._clip.hold(self.weights(gathered.total), gathered.scale)

    def weights(self, vector: Vector) -> list[Vector]:
        """The parts of a vector of the slice's length that are no running statistics."""
        return [vector] if self._grouping is None or not self._averages else self._grouping.weights(vector)

    def norm(self, gradient: Vector) -> float:
        """The L2 norm of a gradient, without running statistics."""
        return math.hypot(*map(l2_norm, self.weights(gradient)))

    def renew_slots(self) -> None:
        """The optimizer's memory begins again."""
        self.slots = self.optimizer.new_slots(self._length)
        self.steps = 0
        self.missed.clear()

    def _changed(self, manner: Manner) -> Optimizer:
        """The run's optimizer with the options of this manner; without a layout it has none that change."""
        return self._asked if self._grouping is None else self._grouping.changed(self._asked, manner.options)

    def _stepping(self, asked: Optimizer) -> Optimizer:
        """What the policy in force steps with in place of this one."""
        return self.policy.server_optimizer(effective(self._pool, asked, self.policy))

    def adopt(self, change: Switch) -> bool:
        before, rate = self.policy, self.rate
        is_new = super().adopt(change)
        if is_new:
            self._begin()
            self.rate.follow(rate)
            if before.server_optimizer(self._asked) != self.policy.server_optimizer(self._asked):
                self.renew_slots()  # what they remember means something else
        return is_new

    def _begin(self) -> None:
        """Rebuilds all that depends on the policy."""
        asked, policy = self._asked, self.policy
        self.optimizer = self._stepping(asked)
        if len(self.slots) != self.optimizer.slots:
            self.renew_slots()
        factor = 1.0 if self.made is None else self.made.rate
        self.rate = Rate(scheduled(self._schedule, self._epochs, self._pool, asked, policy), asked.lr, factor)


def _pulls(optimizer: Optimizer, lr: float, factors: Sequence[float]) -> list[float]:
    """Returns by group the share of a weight that one step pulls it towards zero, where the first one's rate is `lr`."""
    parts = optimizer.parts if isinstance(optimizer, Grouped) else (optimizer,) * len(factors)
    return [
        lr * part.lr / parts[0].lr * factor * getattr(part, "weight_decay", 0.0)
        for part, factor in zip(parts, factors, strict=True)
    ]
