"""The training loop: gradient, push, pull, mix. Everything else is elsewhere."""

from collections import Counter
from collections.abc import Callable

import numpy as np

from paceline.core import kernels
from paceline.core.chief.workers import WorkerPhase
from paceline.core.optimizers.groups import Grouped
from paceline.core.slice.plan import Range
from paceline.core.values import AS_SET, Dense, Empty, Manner, Update
from paceline.rpc.conversions import newest_switch, switch_value
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.parameter_client import Choose
from paceline.worker.training.between_pushes import Work, work
from paceline.worker.training.step_result import Finished, Step
from paceline.worker.training.training_state import Training


def train(training: Training, clock: int) -> int:
    """Trains from `clock` on until a server says that the last one has come; returns it. Where the policy allows it the
    next gradient is computed, on the present weights, while a push is on its way; the one after the last is thrown away."""
    ready = work(training, clock + 1)
    while True:
        clock += 1
        end = begin_exchange(training, clock, ready)
        ahead, is_last = None, ready.is_last
        if training.overlaps and not is_last and not training.client.parting.is_over:
            training.replica.keep_gradient()
            try:
                ahead = work(training, clock + 1)
            except Finished:
                is_last = True
        training.progress.enter(WorkerPhase.EXCHANGE)
        heads, has_pulled = end()
        mix(training, heads, ready.step, has_pulled)
        training.shared.offer(training.replica.local)
        smallest = min(alpha(training, head) for head in heads)
        pulled = training.client.pulled if has_pulled else None
        training.progress.stepped(clock, ready.epoch, ready.step, heads, smallest, pulled)
        if is_last or any(head.stop for head in heads):
            return clock
        if change_policy(training, heads):
            ahead = None  # computed on weights that don't count any more
        else:
            training.client.check_level(training.in_force, [head.version for head in heads])
        if training.client.parting.has_to_leave:
            training.client.parting.check(ahead is not None or training.client.owes)
        ready = ahead or work(training, clock + 1)


# before the push
def begin_exchange(training: Training, clock: int, ready: Work) -> Callable[[], tuple[list[pb.PullHead], bool]]:
    """Sends what is ready; what is returned waits for the replies, and says whether weights came with them."""
    pulls = training.policy.pulls(clock)
    target = destination(training) if pulls else None
    update, examples = outgoing(training, ready.step), weight(ready.step)
    training.client.epoch = ready.epoch
    asks = manner(training, ready.step)
    if ready.part is not None and training.client.parting.has_time():
        training.batches.way.give_back(clock - 1, training.policy.most_steps, ready.part)
    push = clock, training.view, update, examples, target, ready.bases, asks
    end = training.client.begin_push(*push, position=ready.position, spared=ready.spared)
    return lambda: (end(), pulls)


def outgoing(training: Training, step: Step | None) -> Update:
    """What is pushed: the policy's form of the gradient, or an empty update where there is none that can be used."""
    gradient = step.gradient if step is not None and step.finite else None
    values = training.policy.outgoing(gradient, training.own)
    return Empty(training.replica.length) if values is None else Dense(values)


def manner(training: Training, step: Step | None) -> Manner:
    """How the servers step with what is pushed; what workers have stepped with already is taken as it is."""
    return AS_SET if step is None or training.policy.pushes != "gradients" else step.manner


def weight(step: Step | None) -> int:
    """Examples behind the push."""
    return step.examples if step is not None and step.finite else 0


# after the reply
def alpha(training: Training, head: pb.PullHead) -> float:
    """Weight of the global model in this slice's mix. A push that was not folded must not pull harder than a copy."""
    share = training.policy.alpha(head.others if head.HasField("others") else None, head.members)
    return min(1.0, share) if head.outcome == pb.OUTCOME_DROPPED else share


def destination(training: Training) -> Choose:
    """Where a reply's weights go: straight into the local model where they replace it and nobody computes with it."""
    return lambda server, head: training.replica.local if is_direct(training, head) else training.pulled


def is_direct(training: Training, head: pb.PullHead) -> bool:
    """Whether a reply's weights go straight into the local model."""
    return alpha(training, head) == 1 and not training.overlaps


def mix(training: Training, heads: list[pb.PullHead], step: Step | None, has_pulled: bool) -> None:
    """Own plain step with the reply's rate, then the mix, slice by slice; but for weights that came
    straight into the local model."""
    for link, head in zip(training.client.links, heads, strict=True):
        for part in () if is_direct(training, head) else link.ranges:
            where = slice(part.start, part.stop)
            local = training.replica.local[where]
            if training.policy.takes_local_step and step is not None and step.finite:
                step_plainly(training, step, part, head.lr * training.own_rate)
            if has_pulled:
                kernels.mix(local, training.pulled[where], alpha(training, head))
    training.replica.refresh()
    training.bases = training.client.bases
    if training.own.start is not None:
        np.copyto(training.own.start, training.replica.local)


def step_plainly(training: Training, step: Step, part: Range, lr: float) -> None:
    """A plain step of this part of the model; of groups at the rate of each."""
    plain = training.grouping.in_manner(training.plain, step.manner, Counter())
    local, gradient = training.replica.local, step.gradient
    if isinstance(plain, Grouped):
        plain.within(part.start, part.stop).step(local, local, gradient, 1.0, lr, (), 0)
        return
    where = slice(part.start, part.stop)
    kernels.plain_step(local[where], gradient[where], lr)


def change_policy(training: Training, heads: list[pb.PullHead]) -> bool:
    """Begins this worker's half of a new policy where a slice has begun its own: local := pulled
    (docs/understand/rounds.md#changes-of-policy). Returns whether one has."""
    message = newest_switch(heads)
    switch = switch_value(message)
    if switch is None or not training.in_force.adopt(switch):
        return False
    training.view = max(training.view, message.view)
    training.client.pull(training.replica.local, switch.version)  # a slice that has not begun yet is waited for
    if switch.back:
        training.client.forget_owed()  # it may be of gradients that exploded
        training.replica.forget_steps()
        training.progress.went_back()
    training.replica.refresh()
    training.begin()
    return True
