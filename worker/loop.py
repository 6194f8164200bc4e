"""The training loop: gradient, push, pull, mix. Everything else is elsewhere."""

from dataclasses import dataclass, field

import numpy as np

from paceline.core import kernels
from paceline.core.policy import Policy
from paceline.core.values import Dense, Empty, Update, Vector
from paceline.data.sampler import Sampler
from paceline.data.shards import Shard, take
from paceline.v1 import parameter_service_pb2 as pb
from worker.client import Choose, ParameterClient
from worker.progress import Progress
from worker.replica import Replica, Step
from worker.slowness import Slowness


@dataclass
class Training:
    """What one worker trains with."""

    replica: Replica
    client: ParameterClient
    policy: Policy
    sampler: Sampler
    shards: list[Shard]
    progress: Progress
    slowness: Slowness
    seed: int
    place: int
    view: int = 0
    pulled: Vector = field(init=False)

    def __post_init__(self) -> None:
        self.pulled = np.empty_like(self.replica.local)


def train(training: Training, clock: int) -> int:
    """Trains from `clock` on until a server says that the last one has come; returns it."""
    while True:
        clock += 1
        step = compute(training, clock)
        update = outgoing(training, step)
        training.progress.enter("exchange")
        heads = training.client.push_pull(clock, training.view, update, weight(step), destination(training))
        mix(training, heads, step)
        smallest = min(alpha(training, head) for head in heads)
        training.progress.stepped(clock, training.sampler.place(clock).epoch, step, heads, smallest)
        if any(head.stop for head in heads):
            return clock


def compute(training: Training, clock: int) -> Step | None:
    """The gradient of the mini-batch that belongs to this clock; None for an empty one."""
    training.progress.enter("data")
    batch = training.sampler.batch(clock)
    if not len(batch):
        return None
    features, labels = take(training.shards, *batch)
    training.progress.enter("compute")
    seeds = np.random.SeedSequence([training.seed, training.place, clock])
    step = training.replica.gradient(features, labels, int(seeds.generate_state(1)[0]), np.random.default_rng(seeds))
    training.slowness.delay(clock)
    return step


def outgoing(training: Training, step: Step | None) -> Update:
    """What is pushed: the policy's form of the gradient, or an empty update where there is none that can be used."""
    if step is None or not step.finite:
        return Empty(training.replica.length)
    return training.policy.outgoing(Dense(step.gradient), training.replica.local)


def weight(step: Step | None) -> int:
    """Examples behind the push."""
    return step.examples if step is not None and step.finite else 0


def alpha(training: Training, head: pb.PullHead) -> float:
    """Weight of the global model in this slice's mix."""
    return training.policy.alpha(head.others if head.HasField("others") else None, head.members)


def destination(training: Training) -> Choose:
    """Where a reply's weights go: straight into the local model where they replace it."""
    return lambda server, head: training.replica.local if alpha(training, head) == 1 else training.pulled


def mix(training: Training, heads: list[pb.PullHead], step: Step | None) -> None:
    """Own plain step with the reply's rate, then the mix, slice by slice (law 5); alpha 1 was copied already."""
    for link, head in zip(training.client.links, heads, strict=True):
        share = alpha(training, head)
        for part in link.ranges if share < 1 else ():
            where = slice(part.start, part.stop)
            local = training.replica.local[where]
            if training.policy.takes_local_step and step is not None and step.finite:
                kernels.plain_step(local, step.gradient[where], head.lr)
            kernels.mix(local, training.pulled[where], share)
    training.replica.refresh()
