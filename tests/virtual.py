"""A whole run in virtual time: the real ModelSlice, Run and Policy objects behind a bad network, workers that talk to
them as processes do, and crashes, restarts, joins and leaves at any moment."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from virtual_time import Body, Box, Conditions, Network, Task
from virtual_worker import Worker

from paceline.core.config import Config, Options
from paceline.core.errors import PacelineError
from paceline.core.model_slice import ModelSlice, Phase, SliceState
from paceline.core.optimizer import Optimizer
from paceline.core.plan import make_plan
from paceline.core.policy import build_policy
from paceline.core.run import Run, RunPhase, Score
from paceline.core.values import Base, Outcome, Push, Reply, Vector, View

Gradient = Callable[[str, int, Vector], Vector]


class Server:
    """One slice and the boxes of those who wait for its replies; restarts from its last snapshot."""

    def __init__(self, cluster: "Cluster", index: int) -> None:
        self.cluster, self.index, self.is_up, self.term = cluster, index, True, 1
        self.boxes: dict[str, Box] = {}
        self.rounds: list[tuple[float, int]] = []
        """When which version came."""
        self.worst_lead = 0
        self.slice = self._new_slice()
        self.slice.initialise(np.zeros(cluster.plan.lengths[index], np.float32), b"zeros")
        self.snapshot: SliceState = self.slice.state()

    def _new_slice(self) -> ModelSlice:
        cluster = self.cluster
        return ModelSlice(
            cluster.plan.lengths[self.index], build_policy(cluster.config.policy), cluster.optimizer, self.term
        )

    def push(self, push: Push, box: Box) -> None:
        self._answer(push.worker, box, lambda: self.slice.push(push))

    def ask(self, worker: str, incarnation: int, clock: int, box: Box) -> None:
        self._answer(worker, box, lambda: self.slice.ask(worker, incarnation, clock, self.cluster.now))

    def _answer(self, worker: str, box: Box, action: Callable[[], list[Reply]]) -> None:
        if not self.is_up:
            return
        try:
            self.boxes[worker] = box
            before = {name: entry.clock for name, entry in self.slice.clocks.table.items()}
            replies = action()
            assert all(self.slice.clocks.entry(name).clock >= clock for name, clock in before.items()), "a clock shrank"
        except PacelineError as error:
            self.boxes.pop(worker, None)
            self.cluster.carry(partial(box.fill, error))
            return
        self.deliver(replies)
        if self.index == 0:
            self.cluster.run.counted(self.slice.clocks, self.cluster.now)
            self.cluster.publish()

    def deliver(self, replies: Sequence[Reply]) -> None:
        """Sends replies to whoever waits for them; their weights stay pinned until they have arrived."""
        if not self.rounds or self.rounds[-1][1] != self.slice.version:
            self.rounds.append((self.cluster.now, self.slice.version))
        for reply in replies:
            seat, box = self.slice.clocks.seat(reply.worker), self.boxes.pop(reply.worker, None)
            if seat is not None and reply.clock == self.slice.clocks.entry(reply.worker).clock:
                self.worst_lead = max(self.worst_lead, reply.clock + seat.handicap - self.slice.clocks.slowest())
            if box is None or not self.cluster.carry(partial(self._arrive, self.slice, reply, box)):
                self.slice.release(reply.weights)

    def _arrive(self, source: ModelSlice, reply: Reply, box: Box) -> None:
        box.fill((reply, reply.weights.version, reply.weights.values.copy()))
        source.release(reply.weights)

    def pull(self, version: int | None) -> tuple[Base, Vector] | None:
        found = self.slice.pull(version)
        if found is None:
            return None
        copied = Base(self.term, found.version), found.values.copy()
        self.slice.release(found)
        return copied

    def resume(self, worker: str, incarnation: int, clock: int) -> Any:
        standing, replies = self.slice.resume(worker, incarnation, clock)
        self.deliver(replies)
        return standing

    def take_snapshot(self) -> None:
        if self.is_up and self.slice.phase is Phase.SERVING:
            self.snapshot = self.slice.state()
            self.slice.note_durable(self.snapshot)

    def crash(self, downtime: float) -> None:
        self.is_up, self.boxes = False, {}
        self.cluster.after(downtime, self._restart)

    def _restart(self) -> None:
        self.is_up, self.term = True, self.term + 1
        self.slice = self._new_slice()
        self.slice.restore(copy.deepcopy(self.snapshot))
        self.cluster.server_is_back(self)


class Cluster(Network):
    """Servers, the chief's run, workers, and the clock they all live by."""

    def __init__(
        self, seed: int, config: Config, gradient: Gradient, optimizer: Optimizer, length: int, rounds: int,
        conditions: Conditions | None = None,
    ) -> None:  # fmt: skip
        super().__init__(seed, conditions or Conditions())
        self.config, self.gradient, self.optimizer = config, gradient, optimizer
        self.plan = make_plan([("weights", (length,))], config.servers, config.plan)
        self.places = [slice(parts[0].start, parts[0].stop) for parts in self.plan.slices]
        self.examples = rounds * (config.start_when or config.workers) * config.batch_size
        self.servers: list[Server] = []
        self.servers += [Server(self, index) for index in range(config.servers)]
        self.run = Run(config)
        self.run.ready(0.0)
        self.journal = copy.deepcopy(self.run.state())
        self.seen = [0] * config.servers
        """Newest view that each server has said it follows."""
        self.workers: dict[str, Worker] = {}
        self.processes: list[Worker] = []
        self.acknowledged: dict[tuple[int, str], dict[int, Outcome]] = {}
        self.errors: list[tuple[float, str, PacelineError]] = []
        self.exits: list[tuple[str, PacelineError]] = []
        self.after(0.5, self._tick)

    # the chief
    def call_chief(self, action: Callable[[Run], Any]) -> Body:
        def act() -> Any:
            try:
                return action(self.run)
            finally:
                self.publish()

        return self.call(self.servers[0], act)

    def publish(self) -> None:
        """Writes down who counts, then tells the servers; rounds wait where somebody comes or the end is named."""
        self.journal = copy.deepcopy(self.run.state())
        first, view = self.servers[0], self.run.membership.view
        old = first.slice.clocks.view
        if view.number == old.number:
            return
        if self.run.membership.rounds and (self.run.phase is RunPhase.STOPPING or view.seats.keys() - old.seats.keys()):
            first.deliver(first.slice.hold_rounds(first.slice.version + 2))
        first.deliver(first.slice.view(view))
        self._spread()

    def _spread(self) -> None:
        view = self.run.membership.view
        for server in self.servers[1:]:
            if self.seen[server.index] < view.number:
                self.carry(partial(self._follow, server, view), extra=self.conditions.view_delay)
        self._maybe_release()

    def _follow(self, server: Server, view: View) -> None:
        if server.is_up:
            server.deliver(server.slice.view(view))
            self.carry(partial(self._note_seen, server, server.slice, server.slice.clocks.view.number))

    def _note_seen(self, server: Server, source: ModelSlice, number: int) -> None:
        if source is server.slice:
            self.seen[server.index] = max(self.seen[server.index], number)
            self._maybe_release()

    def _maybe_release(self) -> None:
        first = self.servers[0]
        if (
            first.is_up
            and first.slice.held_from is not None
            and min(self.seen[1:], default=1 << 30) >= self.run.membership.view.number
        ):
            first.deliver(first.slice.hold_rounds(None))

    def server_is_back(self, server: Server) -> None:
        self.seen[server.index] = 0
        if server.index == 0:
            self.run = Run(self.config)
            self.run.ready(self.now)
            self.run.restore(copy.deepcopy(self.journal), self.now)
            self.seen = [0] * len(self.servers)
            server.slice.hold_rounds(0)  # a view may have been on its way when the chief died
            server.deliver(server.slice.view(self.run.membership.view))
        self._spread()

    def _tick(self) -> None:
        self.after(0.5, self._tick)
        for server in self.servers:
            server.take_snapshot()
        if self.servers[0].is_up:
            self.run.tick(self.now)
            can_score = all(server.is_up and server.slice.phase is Phase.SERVING for server in self.servers)
            if self.run.phase is RunPhase.SCORING and can_score:
                versions = [server.slice.version for server in self.servers]
                self.run.score(Score(self.run.epoch, self.run.seconds(self.now), versions, {}, final=True), self.now)
            self.publish()
            self._spread()

    # workers
    def step_seconds(self, worker: str) -> float:
        straggles = 10.0 if self.rng.random() < self.conditions.stragglers else 1.0
        return self.conditions.step * self.conditions.slow.get(worker, 1.0) * straggles

    def start_worker(self, name: str, was_fenced: bool = False) -> None:
        self.workers[name] = Worker(self, name, was_fenced)

    def crash_worker(self, name: str, replaced_after: float | None = None) -> None:
        self.workers[name].stop()
        if replaced_after is not None:
            self.after(replaced_after, lambda: self.start_worker(name))

    def tell_to_leave(self, name: str) -> None:
        worker = self.workers[name]
        worker.stop()
        Task(self, worker.leave(False))

    def until_finished(self, deadline: float) -> None:
        """Lets time pass until the run is finished; AssertionError at the virtual deadline."""
        while self.run.phase is not RunPhase.FINISHED:
            self.next_event()
            assert self.now < deadline, f"stalled in phase {self.run.phase}: {self.describe()}"
        assert not self.errors, self.errors

    def acknowledged_workers(self) -> set[str]:
        """Who has had an answer to a push."""
        return {worker for _, worker in self.acknowledged}

    def describe(self) -> str:
        return "; ".join(
            f"server {server.index} {server.slice.phase} v{server.slice.version} held {server.slice.held_from} "
            f"view {server.slice.clocks.view.number} {server.slice.clocks.view.seats} "
            f"clocks { {name: entry.clock for name, entry in server.slice.clocks.table.items()} }"
            for server in self.servers
        )


def one_hot(names: Sequence[str], clocks: int, servers: int) -> Gradient:
    """The ledger: worker w's gradient of clock c is 1 in one element that is theirs alone, on every slice."""
    numbers = {name: number for number, name in enumerate(names)}

    def gradient(worker: str, clock: int, local: Vector) -> Vector:
        block = np.zeros((servers, len(names), clocks), np.float32)
        block[:, numbers[worker], clock] = 1
        return block.reshape(-1)

    return gradient


def make_config(policy: str, **settings: Any) -> Config:
    name, _, bound = policy.partition(":")
    options = {"name": name, "bound": int(bound)} if bound else {"name": name}
    return Config(**({"policy": Options(**options), "epochs": 1, "batch_size": 1} | settings))
