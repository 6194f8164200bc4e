"""What n workers make of settings that are meant for one process: its mini-batch B, its rate a and its momentum m.

The rate belongs to examples: a step on E of the B examples takes a * E / B [Goyal et al. 2017; Sharding eq. 3, 4], where the
optimizer's rate follows the size of its gradients. So lock-step on n shares of B is what one process does, and with one
worker every policy is.

Momentum belongs to steps that follow one another. Where k of them are under way at once, each is taken on weights that lack
the others, and this alone carries a share 1 - 1/k of the moves on [Mitliagkas et al. 2016]. What is left for the optimizer
is `Optimizer.overlapped`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from paceline.core.config import Config
from paceline.core.optimizer import Optimizer, build_optimizer
from paceline.core.options import Extension
from paceline.core.schedule import Schedule


class Scaled(Extension):
    """What a policy, with servers or without, says of the steps that n members take."""

    plain: ClassVar[bool] = False
    """Whether all steps are plain SGD's, whatever the optimizer."""

    def step_pushes(self, members: int) -> float:
        """Pushes whose mean makes one step: 1, or all members' in lock-step. Own steps of workers whose models are averaged
        count like lock-step's."""
        return 1.0

    def overlap(self, members: int) -> float:
        """Steps that are under way at once: 1 where each is taken on the weights that the one before has made; infinite
        where workers take plain steps of their own."""
        return members / self.step_pushes(members)


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers who carry out what is meant for one process."""

    workers: int
    """Seats."""
    share: float
    """A worker's mini-batch as a part of the user's (ratio)."""
    ahead: bool = False
    """Whether a worker computes its next gradient while a push is on its way."""
    corrects: bool = False
    """Whether workers keep the momentum, each of its own steps (codec.momentum)."""

    def optimizer(self, asked: Optimizer, policy: Scaled) -> tuple[Optimizer, float]:
        """The optimizer for steps that overlap as this policy's do, and a factor for its rate."""
        if self.corrects:
            return asked.overlapped(math.inf)[0], 1.0
        overlap = policy.overlap(self.workers)
        return asked.overlapped(2 * overlap if self.ahead and self.workers > 1 else overlap)

    def scale(self, asked: Optimizer, policy: Scaled) -> Callable[[int], float]:
        """Factor of the user's rate for so many live workers."""
        _, gain = self.optimizer(asked, policy)
        return lambda live: gain * asked.scaled(self.share * policy.step_pushes(live))


def pool_of(config: Config) -> Pool | None:
    """None where the user's rate and momentum are taken as they are: schedule.lr_scale says how, or updates are sparse."""
    if config.schedule.lr_scale != "auto" or config.updates == "sparse":
        return None
    return Pool(config.workers, config.worker_batch / config.batch_size, config.overlap, bool(config.codec.momentum))


def effective(pool: Pool | None, asked: Optimizer, policy: Scaled) -> Optimizer:
    """What is stepped with in place of the optimizer that the user asked for; its rate is the schedule's."""
    return asked if pool is None else pool.optimizer(asked, policy)[0]


def told(config: Config, policy: Scaled) -> str:
    """What the user asked for, and what each worker makes of it, in one line."""
    asked, pool, workers = build_optimizer(config.optimizer), pool_of(config), config.workers
    schedule = Schedule(config.schedule, config.epochs, *([] if pool is None else [pool.scale(asked, policy)]))
    rate = asked.lr * schedule.scale(workers)
    used = effective(pool, asked, policy)
    each = f"{workers} worker{'s' if workers > 1 else ''} x {config.worker_batch}"
    how = "" if pool is not None else f" (schedule.lr_scale: {config.schedule.lr_scale})"
    without = ", no weight decay" if policy.plain and getattr(asked, "weight_decay", None) else ""
    return (
        f"for one process: mini-batch {config.batch_size}, {_words(asked, asked.lr)} -> here: {each}, "
        f"{_words(used, rate)}{without}{how}"
    )


def _words(optimizer: Optimizer, rate: float) -> str:
    """'sgd, rate 0.1, momentum 0.9'."""
    momentum = getattr(optimizer, "momentum", None)
    return f"{optimizer.name}, rate {rate:.4g}" + ("" if momentum is None else f", momentum {momentum:.4g}")
