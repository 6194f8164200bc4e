"""A worker that trains a model of torch, from start to end, with servers or with the other workers."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from paceline.core.chief.workers import WorkerPhase
from paceline.core.errors import Behind
from paceline.core.optimizers.clip import Clip
from paceline.core.peers.peer_policy import build_peer_policy
from paceline.core.peers.peer_run import topology_of
from paceline.core.policies.policy import Own, build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Config
from paceline.core.slice.plan import make_plan
from paceline.core.values import Empty, Vector
from paceline.data.manifest import Manifest
from paceline.data.sampler import proportions
from paceline.data.shards import Shards
from paceline.rpc.conversions import switch_value
from paceline.rpc.listening import LOOPBACK, with_port
from paceline.tasks.task import load_task
from paceline.v1.run_service_pb2 import HeartbeatReply, SeatReply
from paceline.worker.command_line import ToldWorker
from paceline.worker.membership.member import Member
from paceline.worker.peers.other_workers import Peers
from paceline.worker.peers.peer_messages import PeerMetrics
from paceline.worker.peers.peer_server import PeerServer
from paceline.worker.startup.run_process import run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings, rank_of
from paceline.worker.training import between_pushes
from paceline.worker.training.model_and_gradient import Replica
from paceline.worker.training.training_loop import train, weight
from paceline.worker.training.training_state import Batches, StepSettings, Training
from paceline.worker.training.way import Stream, Streams


class Listen(NamedTuple):
    """Where a worker listens."""

    host: str = LOOPBACK
    """By which others call it."""
    port: int = 0
    """0: any free one."""
    bind: str = LOOPBACK
    """The address of this machine that it listens on."""


HERE = Listen()


class Worker(Member):
    """A worker that trains a model of torch."""

    def __init__(
        self,
        around: Surroundings,
        shards: Shards,
        replica: Replica | None = None,
        *,
        device: str = "cpu",
        listen: Listen = HERE,
    ) -> None:
        """`replica`: the task's model on `device`, if not given; `listen`: where others read it."""
        config, credentials, say = around.config, around.credentials, around.say
        self.replica = replica or _replica(config, device, rank_of(around.name))
        plan = make_plan(self.replica.shapes, config.servers, config.plan)
        self._peers = None
        self.in_force: PolicyInForce | None = None
        """The policy, once this process trains with servers."""
        self._forgot = 0
        """The last change that went back to older weights, of those that this process has found made already."""
        senders = 0
        if not config.servers:
            codec, senders = config.codec.push_codec, config.workers
            metrics = PeerMetrics(around.registry)
            self._peers = Peers(
                around.name, credentials, config.transport, plan, codec, config.part_bytes, say, metrics, around.outages
            )
        self._peer = PeerServer(
            plan, config.part_bytes, credentials, listen.port, config.transport, self._peers, senders, listen.bind
        )
        super().__init__(around, shards, plan, with_port(listen.host, self._peer.port))
        columns = shards.manifest.columns
        self._inputs = self.replica.watch_inputs(columns.names if columns else ())
        self.progress.large_inputs = lambda: self._inputs.columns
        self.replica.tell_device(around.say, around.registry)

    def epoch_lens(self) -> list[int]:
        return epoch_lens(self.config, self._shards.manifest)

    @property
    def train_examples(self) -> int:
        return self._shards.manifest.train_examples

    @property
    def clock_batch(self) -> int:
        return self.config.worker_batch

    def sizes(self, mine: Sequence[int]) -> list[int]:
        return [self._shards.manifest.sizes[shard] for shard in mine]

    def first_weights(self) -> Vector:
        return self.replica.local.copy()

    def train(self, clock: int, place: int, seat: SeatReply) -> None:
        if self._peers is not None:
            self._train_among(self._peers, clock, place, seat)
            return
        if self.in_force is not None:  # it may have made steps that do not count, and makes them again
            self.replica.forget_steps()
        in_force = self.in_force = PolicyInForce(build_policy(self.config.policy), switch_value(seat.switch))
        if in_force.made is not None and in_force.made.back and in_force.number > self._forgot:
            self.client.forget_owed()  # it may be of gradients that exploded, before the run went back
            self._forgot = in_force.number
        versions = self.client.pull_start(in_force, self.replica.local, clock + seat.handicap)
        self.replica.refresh()
        self.say("training", clock=clock, versions=versions, view=seat.view, shards=self.shards_of(place))
        training = self._training(in_force, place, seat)
        if clock and training.remembers:
            self.say("its own part of the optimizer begins with zeros", clock=clock)
        last = train(training, clock)
        if "mean" in training.policy.scores:
            self._peer.model.finish(self.replica.local)
        self.say("done", clock=last, retries=self.client.retries)

    def _train_among(self, peers: Peers, clock: int, place: int, seat: SeatReply) -> None:
        """Without servers, whose chief has a slice of no elements."""
        self.client.pull(self.replica.local[:0])  # the schedule's rate comes with it
        training = self._training(PolicyInForce(build_policy(self.config.policy)), place, seat)
        own = Own(self.replica.local.copy(), training.optimizer, self.client.lr, grouping=training.grouping)
        own.clip = Clip(self.config.clip, "mean")  # of allreduce, whose members have it
        own.slots = own.optimizer.new_slots(self.replica.length)
        peers.heard(seat.view, seat.peers)
        policy, topology = build_peer_policy(self.config.policy), topology_of(self.config)
        seed, wanted = self.config.seed + place, self.client.check_wanted
        begins = seat.founder and peers.is_first(self.incarnation, seat.peers)
        usual = self.config.worker_batch
        peers.begin(self.incarnation, policy, topology, own, seed, begins, wanted, usual, seat.founder)
        self.say("training", clock=clock, view=seat.view, shards=self.shards_of(place), founder=seat.founder)
        try:
            last = train_among(training, peers, clock)
        finally:
            peers.end()
        np.copyto(self.replica.local, own.local)  # with the last step
        self.replica.refresh()
        self._peer.model.finish(own.local)
        self.say("done", clock=last, retries=self.client.retries)

    def batches(self, place: int) -> Batches:
        """The mini-batches of the worker at that place."""
        streams = Streams(partial(self._stream, place), self._steps)
        return Batches(streams=streams, way=self.way(place), seed=self.config.seed, pause=self.pause)

    def _stream(self, place: int, number: int) -> Stream:
        mine = self.shards_of(number)
        if number != place:
            self.take_over(number, mine)
        return Stream(self.sampler(number, mine), [self._shards.shard(shard) for shard in mine])

    def _training(self, in_force: PolicyInForce, place: int, seat: SeatReply) -> Training:
        return Training(
            replica=self.replica,
            client=self.client,
            in_force=in_force,
            asked=StepSettings.by(self.config),
            batches=self.batches(place),
            progress=self.progress,
            slowness=self._slowness(place),
            shared=self._peer.model,
            view=seat.view,
        )

    def _goes_back(self, error: Behind) -> None:
        super()._goes_back(error)
        self.replica.leave_gradients()

    def traffic(self) -> tuple[int, int]:
        return super().traffic() if self._peers is None else self._peers.traffic

    def _heard(self, reply: HeartbeatReply) -> None:
        super()._heard(reply)
        if self._peers is not None:
            self._peers.heard(reply.view, reply.peers)

    def left(self, incarnation: int) -> None:
        if self._peer.model.is_final:
            self.say("serving the local model until the run is scored")
            self.chief.await_finish(incarnation, self.progress.state, self.config.score_timeout)


def _replica(config: Config, device: str, rank: int) -> Replica:
    """The task's model, computed with as the config says."""
    return Replica(
        load_task(config.task, config.model),
        device,
        config.seed,
        rank=rank,
        precision=config.precision,
        accumulate=config.accumulate,
        compile=config.compile,
    )


def epoch_lens(config: Config, manifest: Manifest) -> list[int]:
    """Examples that one epoch takes at each place: those of its shards, or with `access: all` 1/n of the whole set."""
    if config.data.access == "all":
        return proportions(manifest.train_examples, [1] * config.workers)
    return [sum(manifest.epoch_lens[place :: config.workers]) for place in range(config.workers)]


def work(start: Start[ToldWorker]) -> int:
    """Runs a worker; returns the exit code."""
    return run_process(start, lambda around, shards: worker_of(start, around, shards).run())


def worker_of(start: Start[Any], around: Surroundings, shards: Shards, replica: Replica | None = None) -> Worker:
    """Builds the worker from what it starts with, its surroundings and its shards."""
    told = start.told
    return Worker(around, shards, replica, device=told.device, listen=Listen(told.peer_host, told.peer_port, told.bind))


def train_among(training: Training, peers: Peers, clock: int) -> int:
    """Trains from `clock` on until the chief says that the last one has come; returns it. Reports each clock to the chief,
    which replies with the rate of the next one."""
    replica, wanted = training.replica, training.client.check_wanted
    while True:
        clock += 1
        peers.start_step(replica.local)
        replica.refresh()
        worked = between_pushes.work(training, clock)
        done = worked.step
        usable = done is not None and done.finite
        training.progress.enter(WorkerPhase.EXCHANGE)
        if done is not None:
            # one model for all: touched by one
            peers.own.manner = done.manner if training.policy.averages else replace(done.manner, untouched=())
            peers.own.optimizer = training.optimizer
        gradient = done.gradient if done is not None and usable else None
        waited = peers.end_step(gradient, wanted, max(1, weight(done)))
        told = training.view, Empty(replica.length), weight(done), None
        (head,) = training.client.push_pull(clock, *told, round=peers.round, position=worked.position)
        head.waited = waited  # not for the chief, but for the others
        peers.take_rate(head.lr)
        with peers.model() as model:
            training.shared.offer(model)
        training.progress.stepped(clock, worked.epoch, done, [head], 1.0)
        if worked.is_last or head.stop:
            return clock
