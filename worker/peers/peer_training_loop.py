"""The training loop without servers: gradient, then whatever the policy has to say to the other workers."""

from paceline.core.values import Empty, Manner
from paceline.worker.peers.other_workers import Peers
from paceline.worker.training.between_pushes import work
from paceline.worker.training.training_loop import epoch, weight
from paceline.worker.training.training_state import Training


def train_among(training: Training, peers: Peers, clock: int) -> int:
    """Trains from `clock` on until the chief says that the last one has come; returns it. Reports each clock to the chief,
    which replies with the rate of the next one."""
    replica, wanted = training.replica, training.client.check_wanted
    while True:
        clock += 1
        peers.start_step(replica.local)
        replica.refresh()
        done = work(training, clock).step
        usable = done is not None and done.finite
        training.progress.enter("exchange")
        if done is not None:
            peers.own.manner = (
                done.manner if training.policy.averages else Manner(done.rates)
            )  # one model for all: touched by one
        gradient = done.gradient if done is not None and usable else None
        waited = peers.end_step(gradient, wanted, max(1, weight(done)))
        told = training.view, Empty(replica.length), weight(done), None
        (head,) = training.client.push_pull(clock, *told, round=peers.round)
        head.waited = waited  # not for the chief, but for the others
        peers.take_rate(head.lr)
        with peers.model() as model:
            training.shared.offer(model)
        training.progress.stepped(clock, epoch(training, clock), done, [head], 1.0)
        if head.stop:
            return clock
