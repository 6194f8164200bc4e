"""A training in virtual time without servers: what workers send to one another, and what they wait for."""

from collections.abc import Sequence
from functools import partial
from random import Random

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.peers.peer_policy import Group, Message, build_peer_policy
from paceline.core.peers.peer_run import topology_of
from paceline.core.settings.config import Config
from paceline.core.values import Empty, Reply, Vector
from paceline_studies.simulator.problem import PARTS, Problem
from paceline_studies.simulator.scene import Scene
from paceline_studies.simulator.servers import gradient_of
from paceline_studies.simulator.worker import Worker
from paceline_studies.simulator.workers import Data, NewPace, Training


class Among(Training):
    """As worker/module_worker.py: the workers' models are their own, and the chief counts."""

    def __init__(self, config: Config, data: Data, pace: NewPace, scene: Scene | None = None) -> None:
        if scene is not None and scene.away:
            raise ConfigError(
                f"--away: got {'; '.join(scene.away)}, but without servers (policy {config.policy.name}) nobody can be away in "
                "a simulation. Leave it out, or take a policy with servers."
            )
        super().__init__(config, data, pace, scene)
        group, topology = Group(self.view.number, tuple(range(config.workers))), topology_of(config)
        self._members = {worker.rank: build_peer_policy(config.policy) for worker in self.workers}
        self._waiting: dict[int, int] = {}
        """Examples of the step that each rank waits to end."""
        self._scale = data.values / max(1, len(data.first))
        """Values that travel for each one that is computed with."""
        for worker in self.workers:
            worker.own.slots = worker.own.optimizer.new_slots(len(data.first))
            member = self._members[worker.rank]
            member.begin(worker.rank, group, topology, worker.own, Random(config.seed + worker.rank))

    def _begin(self, worker: Worker) -> None:
        self._tell(self._members[worker.rank].start())
        count, time = self._compute(worker, worker.clock + 1)
        gradient = self._gradient(worker, count) if count else None
        self.time.after(time, partial(self._computed, worker, gradient, count))

    def _gradient(self, worker: Worker, count: int) -> Vector | None:
        """Of that many examples of the next mini-batch, at the worker's model as it is now; None: nothing is computed."""
        return None

    def _computed(self, worker: Worker, gradient: Vector | None, examples: int) -> None:
        self._waiting[worker.rank] = examples
        worker.counted = self.time.now
        self._tell(self._members[worker.rank].step(gradient, examples / self.config.worker_batch))
        self._look(worker.rank)

    def _tell(self, messages: Sequence[Message]) -> None:
        for message in messages:
            way = f"worker-{message.sender}", f"worker-{message.to}"
            self.pace.carry(way, round(len(message.values) * self._scale), partial(self._arrived, message))

    def _arrived(self, message: Message) -> None:
        if message.to in self._members:
            self._tell(self._members[message.to].receive(message))
            self._look(message.to)

    def _look(self, rank: int) -> None:
        """Lets the worker go on where nothing is missing any more."""
        if rank in self._waiting and not self._members[rank].waits_for():
            worker, examples = self.workers[rank], self._waiting.pop(rank)
            waited = self.time.now - worker.counted
            self.waited += waited
            worker.waited += waited
            worker.clock += 1
            self._exchange(worker, [Empty(0)], examples)

    def _take(self, worker: Worker, replies: Sequence[tuple[int, Reply, Vector]]) -> None:
        """Nothing but the rate, which all take."""

    def _left(self, worker: Worker) -> None:
        del self._members[worker.rank]
        group = Group(self.view.number, tuple(self._members)) if self._members else None
        for rank in list(self._members):
            assert group is not None
            self._tell(self._members[rank].regroup(group))
            self._look(rank)


class ComputedAmong(Among):
    """With gradients."""

    data: Problem

    def _gradient(self, worker: Worker, count: int) -> Vector | None:
        rows = worker.sampler.indices(worker.clock + 1)[:count]
        return gradient_of(self.data, worker, rows, worker.own.local.copy())

    def model(self) -> Vector:
        models = np.array([worker.own.local for worker in self.workers], np.float64)
        return np.asarray(models.mean(axis=0), np.float32)

    def measures(self, of: Sequence[str] = PARTS) -> dict[str, float]:
        return self.data.measures(self.model(), of)
