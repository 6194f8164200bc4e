"""What n workers make of settings that are meant for one process: its mini-batch B, its rate a and its momentum m.

The rate belongs to examples: a step on E of the B examples takes a * E / B for SGD [Goyal et al. 2017; Sharding eq. 3, 4], and
a * sqrt(E / B) for adaptive steps [Malladi et al. 2022]. So lock-step on n shares of B is what one process does, and with one
worker every policy is.

Memory belongs to steps that follow one another. Where other workers' steps come between, the servers' momentum would continue
a direction that no longer fits; each worker keeps the momentum, or Adam's moments, of what it computes instead
[Hakimi et al. 2019], pushes the direction, and the servers take plain steps. A direction divided by the noise of E = B / n
examples is sqrt(n) times as short as one of B, and n of them make one step of one process: each takes a / sqrt(n), and the
mean of K of them K times that.

What is decayed belongs to examples, whatever the rate is: rate times decay of a step on E examples is E / B of the user's."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from paceline.core.extension import Extension, SettingsRule
from paceline.core.optimizers.builtin.sgd import along_directions
from paceline.core.optimizers.optimizer import Optimizer, build_optimizer
from paceline.core.optimizers.schedule import Schedule
from paceline.core.optimizers.worker_half import WorkerHalf
from paceline.core.settings.config import Config, ScheduleConfig
from paceline.core.settings.linear import FEW


class Scaled(Extension):
    """What a policy, with servers or without, says of the steps that n members take."""

    rules: ClassVar[tuple[SettingsRule, ...]] = ()
    """Settings that conflict with it, besides those that conflict with every policy (core/setting_rules/)."""
    plain: ClassVar[bool] = False
    """Whether all steps are plain SGD's, whatever the optimizer."""
    worker_momentum: ClassVar[bool] = True
    """Whether each of several workers keeps SGD's momentum, or Adam's moments, itself. Not in lock-step, nor where each worker
    steps a local model: there one step follows the other."""

    own_half: ClassVar[bool] = False
    """Whether the policy itself has the workers' half of the optimizer."""
    averages: ClassVar[bool] = False
    """Whether each worker steps a local model with the run's optimizer, and these models are averaged."""
    same_steps: ClassVar[bool] = False
    """Without servers: whether all members take the same steps, so that those of a round must have one rate."""

    waits: ClassVar[bool] = False
    """Without servers: whether each step waits for messages of others, so that all make about as many."""

    @property
    def steps_on_mean(self) -> bool:
        """Whether each step is on the mean of gradients that all, or most, have computed on the same weights."""
        return self.same_steps

    def step_pushes(self, members: int) -> float:
        """Pushes whose mean makes one step: 1, or all members' in lock-step. Own steps of workers whose models are averaged
        count like lock-step's."""
        return 1.0

    def divides(self, members: int) -> float:
        """What the policy itself divides the rate of equal workers' pushes by."""
        return 1.0

    def caution(self, optimizer: Optimizer, members: int) -> str:
        """Why several workers may end below plain torch with the same settings, in words; empty: they don't
        (docs/choose/policies.md). `optimizer`: the user's."""
        return ""


@dataclass(frozen=True, slots=True)
class Pool:
    """The workers who carry out what is meant for one process."""

    workers: int
    """Seats."""
    share: float
    """A worker's mini-batch as a part of the user's (ratio)."""
    corrects: bool = False
    """Whether the workers' codec keeps the momentum (codec.momentum)."""

    def scale(self, asked: Optimizer, policy: Scaled) -> Callable[[int], float]:
        """The factor of the user's rate, given the number of live workers."""
        return lambda live: self._scaled(asked, policy, live) * policy.divides(live)

    def decay(self, asked: Optimizer, policy: Scaled) -> float:
        """The factor of the user's decay by which it belongs to examples where the rate does not."""
        examples = min(1.0, self.share * policy.step_pushes(self.workers))
        return examples / self._scaled(asked, policy, self.workers)

    def own_rate(self, asked: Optimizer, policy: Scaled) -> float:
        """The factor of the servers' rate for a worker's plain steps on its own model, which the others don't step: all n
        steps at once along directions, whose length says nothing of how many there are."""
        return self.workers if asked.adaptive and self.has_halves(asked, policy) else 1.0

    def half(self, asked: Optimizer, policy: Scaled) -> WorkerHalf | None:
        """What each worker keeps in place of the servers."""
        return WorkerHalf(asked) if self.has_halves(asked, policy) else None

    def has_halves(self, asked: Optimizer, policy: Scaled) -> bool:
        """Whether each worker keeps what the optimizer remembers."""
        alone = self.workers == 1 and not policy.plain
        if alone or self.corrects or not policy.worker_momentum or not asked.has_worker_half:
            return False
        # an adaptive step on as many examples as in one process is that of one process
        return not asked.adaptive or self.share * policy.step_pushes(self.workers) < 1

    def _scaled(self, asked: Optimizer, policy: Scaled, live: int) -> float:
        pushes = policy.step_pushes(live)
        alone = self.share if policy.averages else 1 / pushes if self.has_halves(asked, policy) else 1.0
        return asked.scaled(self.share * pushes, alone)


def pool_of(config: Config) -> Pool | None:
    """None where the user's rate and momentum are taken as they are: schedule.lr_scale says how, or updates are sparse."""
    if config.schedule.lr_scale != "auto" or config.updates == "sparse":
        return None
    return Pool(config.workers, config.worker_batch / config.batch_size, bool(config.codec.momentum))


def effective(pool: Pool | None, asked: Optimizer, policy: Scaled) -> Optimizer:
    """What is stepped with in place of the optimizer that the user asked for; its rate is the schedule's."""
    if pool is None:
        return asked
    if pool.corrects:
        return asked.each(lambda one: one.model_copy(update={"momentum": 0.0}))
    factor = pool.decay(asked, policy)
    decayed = asked if factor == 1 else asked.decayed(factor)
    if policy.averages or policy.own_half:
        return decayed
    if pool.has_halves(asked, policy):
        return along_directions(decayed)
    share = pool.share * policy.step_pushes(pool.workers)
    return decayed.spread(share) if share < 1 else decayed


def scheduled(schedule: ScheduleConfig, epochs: float, pool: Pool | None, asked: Optimizer, policy: Scaled) -> Schedule:
    """The schedule of a run of `epochs` epochs, whose 'auto' is the pool's factor of the user's rate."""
    return Schedule(schedule, epochs) if pool is None else Schedule(schedule, epochs, pool.scale(asked, policy))


def settings_lines(config: Config, policy: Scaled) -> list[str]:
    """What the user asked for, and what each worker makes of it, in one line; and others where that may be worse than in
    one process, or takes longer."""
    asked, pool, workers = build_optimizer(config.optimizer), pool_of(config), config.workers
    rate = asked.lr * scheduled(config.schedule, config.epochs, pool, asked, policy).scale(workers)
    each, batch = f"{workers} worker{'s' if workers > 1 else ''}", ""
    if not (config.is_script and config.worker_batch == 1):  # what one draws itself counts as one
        each, batch = f"{each} x {config.worker_batch}", f"mini-batch {config.batch_size}, "
    where = "" if pool is None or not (pool.corrects or pool.has_halves(asked, policy)) else " at each worker"
    how = "" if pool is not None else f" (schedule.lr_scale: {config.schedule.lr_scale})"
    here = asked if where else effective(pool, asked, policy)
    lines = [
        f"for one process: {batch}{_words(asked, asked.lr)} -> here: {each}, "
        f"{_words(here, rate)}{where}{how}{_groups(asked, rate)}"
    ]
    if why := cautioned(config, policy):
        lines.append(f"{config.policy.name} may end below what one process reaches with the same settings: {why}.")
    return [*lines, *_slower(config), *_longer(config)]


def cautioned(config: Config, policy: Scaled) -> str:
    """Why the run may end below one process, in words; empty: nothing speaks for it."""
    if config.workers == 1:
        return ""
    asked = build_optimizer(config.optimizer)
    return policy.caution(asked, config.workers) or _noisier(config, asked, policy)


def _noisier(config: Config, asked: Optimizer, policy: Scaled) -> str:
    """Why the servers' adaptive steps may be noisy: each is on few examples. Empty where this does not apply (as for Adam in
    workers)."""
    pool = pool_of(config)
    if pool is None or policy.averages or policy.step_pushes(config.workers) >= config.workers:
        return ""
    if not asked.adaptive or policy.own_half or pool.has_halves(asked, policy):
        return ""
    return f"{asked.name}'s steps on few of the workers' pushes each are noisy; policy=bsp steps on all"


def _slower(config: Config) -> list[str]:
    """That workers of a linear model need more epochs, where they do."""
    times = config.svm.slowdown(config.workers) if config.updates == "sparse" else 1.0
    if times == 1:
        return []
    need = f"{config.workers} workers with fitted steps need about {times:g} times the epochs of up to {FEW}"
    return [f"{need} (docs/choose/linear-models.md); this run has {config.epochs}."]


def _longer(config: Config) -> list[str]:
    """That a script's epoch has more steps than in one process, where its mini-batch can't be dealt in equal parts."""
    step = config.workers * config.worker_batch
    if not config.is_script or config.batch == "worker" or step >= config.batch_size:
        return []
    return [
        f"a mini-batch of {config.batch_size} can't be dealt to {config.workers} workers in equal parts: a step is on {step}, "
        f"so an epoch has {config.batch_size / step:.3g} times the steps of one process. A mini-batch of {step} has as many."
    ]


def _words(optimizer: Optimizer, rate: float) -> str:
    """'sgd, rate 0.1, momentum 0.9'."""
    parts = [optimizer.name, f"rate {rate:.4g}"]
    for name in ("momentum", "betas", "alpha"):
        value = getattr(optimizer, name, None)
        if value is not None:
            parts.append(
                " ".join([name, *(f"{each:.6g}" for each in (value if isinstance(value, tuple) else (value,)))])
            )
    return ", ".join(parts)


def _groups(asked: Optimizer, rate: float) -> str:
    """'; groups: *.bias with weight_decay 0; head.weight and 3 more with rate 0.01 -> 0.005', where the others' is `rate`
    here; empty where there are none."""
    told = []
    for group, member in zip(asked.groups, asked.members[1:], strict=True):
        first, *more = group.parameters
        options = dict(group.model_extra or {})
        here = rate * member.lr / asked.lr if asked.lr else 0.0
        own = [f"rate {member.lr:.4g} -> {here:.4g}"] if options.pop("lr", None) is not None else []
        own += [f"{name} {value}" for name, value in options.items()]
        who = f"{first} and {len(more)} more" if more else first
        told.append(f"{who} with {', '.join(own)}" if own else f"{who} as the others")
    return f"; groups: {'; '.join(told)}" if told else ""
