"""A training in virtual time without servers: what workers send to one another, and what they wait for."""

from collections.abc import Sequence
from functools import partial
from random import Random

import numpy as np

from paceline.core.peers.peer_policy import Group, Message, build_peer_policy
from paceline.core.peers.peer_run import topology_of
from paceline.core.settings.config import Config
from paceline.core.values import Empty, Push, Reply, Vector
from paceline.simulator.links import Links
from paceline.simulator.problem import Problem
from paceline.simulator.workers import Training, Worker


class Among(Training):
    """As worker/peers/peer_training_loop.py: the workers' models are their own, and the chief counts."""

    def __init__(self, config: Config, problem: Problem, links: Links | None = None, spell: int = 1) -> None:
        super().__init__(config, problem, links, spell)
        group, topology = Group(self.view.number, tuple(range(config.workers))), topology_of(config)
        self._members = {worker.rank: build_peer_policy(config.policy) for worker in self.workers}
        self._waiting: dict[int, int] = {}
        """Examples of the step that each rank waits to end."""
        for worker in self.workers:
            worker.own.slots = self._optimizer.new_slots(len(problem.first))
            member = self._members[worker.rank]
            member.begin(worker.rank, group, topology, worker.own, Random(config.seed + worker.rank))

    def _begin(self, worker: Worker) -> None:
        self._tell(self._members[worker.rank].start())
        gradient, examples, time = self._compute(worker, worker.own.local.copy(), worker.clock + 1)
        self.time.after(time, partial(self._computed, worker, gradient, examples))

    def _computed(self, worker: Worker, gradient: Vector | None, examples: int) -> None:
        self._waiting[worker.rank] = examples
        worker.ready = self.time.now
        self._tell(self._members[worker.rank].step(gradient))
        self._look(worker.rank)

    def _tell(self, messages: Sequence[Message]) -> None:
        for message in messages:
            way = f"worker-{message.sender}", f"worker-{message.to}"
            self._carry(partial(self._arrived, message), way, len(message.values))

    def _arrived(self, message: Message) -> None:
        if message.to in self._members:
            self._tell(self._members[message.to].receive(message))
            self._look(message.to)

    def _look(self, rank: int) -> None:
        """Lets the worker go on where nothing is missing any more."""
        if rank in self._waiting and not self._members[rank].waits_for():
            worker, examples = self.workers[rank], self._waiting.pop(rank)
            self.waited += self.time.now - worker.ready
            worker.clock += 1
            push = Push(
                worker.name, 1, worker.clock, Empty(0), examples, worker.bases[0], self.view.number, self.time.now
            )
            self._carry(partial(self._push, worker, 0, push), (worker.name, "server-0"), 0)

    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        """Nothing but the rate, which all take."""

    def _left(self, worker: Worker) -> None:
        del self._members[worker.rank]
        group = Group(self.view.number, tuple(self._members)) if self._members else None
        for rank in list(self._members):
            assert group is not None
            self._tell(self._members[rank].regroup(group))
            self._look(rank)

    def model(self) -> Vector:
        models = np.array([worker.own.local for worker in self.workers], np.float64)
        return np.asarray(models.mean(axis=0), np.float32)
