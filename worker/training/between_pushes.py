"""What a worker computes between two pushes: the mini-batches of a clock, and its own steps where the policy has any."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from paceline.core import kernels
from paceline.core.chief.workers import WorkerPhase
from paceline.core.values import Base, Position
from paceline.data.sampler import Batch
from paceline.data.shards import take
from paceline.worker.training.step_result import Finished, Step
from paceline.worker.training.training_state import Training
from paceline.worker.training.way import Item


@dataclass(frozen=True, slots=True, eq=False)
class Work:
    """What the mini-batches of one clock gave."""

    step: Step | None
    """None where all of them were empty."""
    bases: Sequence[Base]
    """The weights that it was computed on."""
    is_last: bool = False
    """Whether the script has finished after it."""
    spared: Collection[int] = ()
    """Servers that get an empty push, since they have these mini-batches already."""
    epoch: int = 0
    """The pass over the data that the newest mini-batch is of."""
    position: Position | None = None
    """Where a script is in its data."""
    part: int | None = None
    """How many of the clock's mini-batches these are, where a worker that leaves has not computed all."""


def work(training: Training, clock: int) -> Work:
    """The mini-batches that belong to this clock, with own steps between them where the policy has any. Raises Finished where
    the script has none left."""
    training.own.lr = training.client.lr * training.own_rate
    mine, done = training.batches.of(clock, training.policy, training.progress.speed), None
    is_last, made, part = False, 0, None
    for item in mine.items:
        try:
            step = compute(training, item)
        except Finished:
            if done is None:
                raise
            is_last = True
            break
        if step is not None and step.finite and training.stepper is not None:
            training.own.step(training.stepper, step.gradient)
            training.replica.refresh()
        done, made = together(done, step), made + 1
        if training.client.parting.has_to_leave:
            part = made if made < training.policy.most_steps else None
            break
    if training.stepper is not None and done is not None and not kernels.all_finite(training.replica.local):
        done = replace(done, finite=False)  # own steps have exploded after the last gradient that had not
    where = training.batches.position(done)
    return Work(done, training.bases, is_last, mine.has, training.batches.epoch, where, part)


def together(before: Step | None, step: Step | None) -> Step | None:
    """Two steps as one push: the newer gradient, all examples that count, the mean loss; left alone is what both do."""
    if before is None or step is None or not (before.finite and step.finite):
        return step if before is None or (step is not None and step.finite) else before
    examples = before.examples + step.examples
    loss = (before.loss * before.examples + step.loss * step.examples) / examples
    untouched = tuple(tensor for tensor in step.manner.untouched if tensor in before.manner.untouched)
    manner, position = replace(step.manner, untouched=untouched), step.position
    if position is not None and before.position is not None:
        position = position._replace(examples=before.position.examples + position.examples)
    return replace(step, loss=loss, examples=examples, manner=manner, position=position)


def compute(training: Training, item: Item) -> Step | None:
    """The gradient of a mini-batch, clipped, with the worker's own momentum; None for an empty one."""
    training.progress.enter(WorkerPhase.DATA)
    batches, clip, position = training.batches, training.asked.clip, item.seed[1]
    shards, whole = batches.streams.batch(item.stream, item.row)
    batch, share = part(whole, training.progress.speed if training.asked.by_speed else 1.0)
    if not len(batch):
        return None
    features, labels = take(shards, *batch)
    training.progress.enter(WorkerPhase.COMPUTE)
    began = time.monotonic()
    seeds = np.random.SeedSequence([batches.seed, *item.seed])
    step = training.replica.gradient(features, labels, int(seeds.generate_state(1)[0]), np.random.default_rng(seeds))
    training.progress.loaded(training.replica.loaded)
    training.slowness.delay(position, share)
    training.progress.computed(len(batch), time.monotonic() - began)
    training.follow(step.manner)
    if step.finite and not training.replica.steps_itself:  # torch's optimizers do that themselves
        training.asker.ascend(step.gradient)
    if step.finite and clip.hold([step.gradient[: training.replica.weights_end]]):
        training.replica.clipped()
    if training.half is not None and step.finite:
        own = training.own
        training.half.look_ahead(step.gradient, own.local, own.grouping, own.manner.untouched)
    return step


def part(batch: Batch, speed: float) -> tuple[Batch, float]:
    """The first examples of a mini-batch, as many as a worker of this speed computes while the fastest one (1) computes
    all, and their share of it. Two at least, since one is too few for BatchNorm."""
    count, share = part_of(len(batch), speed)
    return Batch(batch.shards[:count], batch.rows[:count]), share


def part_of(examples: int, speed: float) -> tuple[int, float]:
    """How many of that many examples, and their share of all."""
    count = min(examples, max(2, round(speed * examples)))
    return count, count / max(1, examples)
