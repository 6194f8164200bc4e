"""One worker from start to end: waits for shards and servers, joins, trains and leaves."""

import threading
import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from paceline.core.clip import Clip
from paceline.core.config import Config, Options
from paceline.core.errors import ConfigError, Fenced, Stopped
from paceline.core.optimizer import build_optimizer
from paceline.core.plan import make_plan
from paceline.core.policy import build_policy
from paceline.data.manifest import Manifest
from paceline.data.sampler import Sampler, proportions, steps_per_epoch
from paceline.data.shards import Shards
from paceline.rpc.views import switch_value
from paceline.tasks.task import load_task
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.run_service_pb2 import HeartbeatReply, JoinReply
from worker.chief import ChiefClient, Heartbeat
from worker.client import ParameterClient
from worker.link import no_snapshot
from worker.loop import train
from worker.peer import PeerServer
from worker.progress import Progress
from worker.replica import Replica
from worker.slowness import Slowness
from worker.start import Start, Surroundings, rank_of, run_process
from worker.training import Training

_PATIENCE = 10.0
"""Time that a worker without place 0 gives the others to send the first weights (seconds)."""


class Worker:
    """What one worker process is made of."""

    def __init__(
        self, config: Config, name: str, shards: Shards, addresses: list[str], token: str, device: str,
        stop: threading.Event, say: Callable[..., None], registry: CollectorRegistry, replica: Replica | None = None,
        listen: tuple[str, int] = ("127.0.0.1", 0),
    ) -> None:  # fmt: skip
        self.config, self.name, self._shards, self._stop, self._say = config, name, shards, stop, say
        deadline = time.monotonic() + config.deadline
        self.replica = replica or _replica(config, device, rank_of(name))
        plan = make_plan(self.replica.shapes, config.servers, config.plan)
        self._peer = PeerServer(plan, config.part_bytes, token, listen[1])
        address = f"[{listen[0]}]:{self._peer.port}" if ":" in listen[0] else f"{listen[0]}:{self._peer.port}"
        self._chief = ChiefClient(addresses[0], token, config, name, deadline, stop, say, address)
        self._progress = Progress(registry, say)
        self._client = ParameterClient(
            addresses, token, plan, config, name, deadline, stop, say, self._progress.retried
        )

    def run(self) -> None:
        """Trains until the run is over; joins anew when its seat is lost. Fenced when another process holds it."""
        manifest, was_fenced = self._shards.manifest, False
        sizes = manifest.sizes
        lens = epoch_lens(self.config, manifest)
        check_batch(self.config, max(lens))
        steps = steps_per_epoch(lens, [[place] for place in range(len(lens))], self.config.worker_batch)
        while True:
            joined = self._chief.join(was_fenced, manifest.train_examples, steps, manifest.fingerprint, len(sizes))
            if joined is None:
                self._say("the run is over; nothing left to do")
                return
            try:
                self._session(joined, sizes, steps)
                return
            except Fenced as error:
                self._say("joining anew", why=str(error))
                was_fenced = True

    def _session(self, joined: JoinReply, sizes: Sequence[int], steps: int) -> None:
        """From Join to Leave."""
        heartbeat = Heartbeat(
            self._chief, self.config.heartbeat, joined.incarnation, self._progress.state,
            self._heard, self._client.fenced, self._say,
        )  # fmt: skip
        finished = False
        try:
            mine = list(range(len(sizes)) if self.config.data.access == "all" else joined.shards)
            for shard in mine:
                self._shards.verify(shard)
            mine_sizes = [sizes[shard] for shard in mine]
            length = epoch_lens(self.config, self._shards.manifest)[joined.place]
            sampler = Sampler(mine_sizes, self.config.worker_batch, steps, self.config.seed, self.name, length)
            self._train(joined.incarnation, joined.place, mine, sampler)
            finished = True
        finally:
            self._progress.enter("done")
            heartbeat.close()
            self._chief.leave(joined.incarnation, finished)
        if self._peer.model.is_final:
            self._say("serving the local model until the run is scored")
            self._chief.await_finish(joined.incarnation, self._progress.state, self.config.score_timeout)

    def _train(self, incarnation: int, place: int, mine: list[int], sampler: Sampler) -> None:
        """Takes the seat and trains to the last clock; returns at once when the run is over before that."""
        clock = min(standing.clock for standing in self._ready(incarnation, place))
        self._client.start_after(clock)
        self._progress.enter("waiting")
        seat = self._chief.seat(incarnation, clock)
        if seat is None or (seat.HasField("last") and clock >= seat.last):
            return
        switch = switch_value(seat.switch)
        policy = build_policy(Options(**switch.policy) if switch else self.config.policy)
        versions = self._client.pull(self.replica.local, clock + seat.handicap if policy.rounds else None)
        self.replica.refresh()
        self._say("training", clock=clock, versions=versions, view=seat.view, shards=mine)
        training = Training(
            self.replica, self._client, policy, build_optimizer(self.config.optimizer), sampler,
            [self._shards.shard(shard) for shard in mine], self._progress, self._slowness(place),
            Clip(self.config.clip), self.config.seed, place, seat.view, self.config.batch == "speed",
            switch.number if switch else 0, self._peer.model, self.config.overlap,
        )  # fmt: skip
        last = train(training, clock)
        if "mean" in training.policy.scores:
            self._peer.model.finish(self.replica.local)
        self._say("done", clock=last, retries=self._client.retries)

    def _ready(self, incarnation: int, place: int) -> list[pb.ResumeReply]:
        """Where this worker stands on every slice, once all have first weights; place 0 sends them."""
        start = time.monotonic()
        first = self.replica.local.copy()
        while True:
            standings = self._client.attach(incarnation)
            empty = [server for server, standing in enumerate(standings) if standing.phase == "empty"]
            if not empty:
                return standings
            if any(standing.version for standing in standings):
                raise no_snapshot(empty[0])
            if place == 0 or time.monotonic() - start > _PATIENCE:
                self._client.initialise(first)
            elif self._stop.wait(0.1):
                raise Stopped("The worker was told to stop.")

    def _heard(self, reply: HeartbeatReply) -> None:
        """What the chief says with each heartbeat."""
        self._progress.fastest = reply.fastest
        self._client.resume_after_restart(reply.terms)

    def _slowness(self, place: int) -> Slowness:
        return Slowness(self.config.slow, place, self.config.nominal_step, self.config.seed, self._stop.wait)


def _replica(config: Config, device: str, rank: int) -> Replica:
    """The task's model, computed with as the config says."""
    return Replica(
        load_task(config.task, config.model), device, config.seed, rank=rank, precision=config.precision,
        accumulate=config.accumulate, compile=config.compile,
    )  # fmt: skip


def epoch_lens(config: Config, manifest: Manifest) -> list[int]:
    """Examples that one epoch takes at each place: those of its shards, or with `access: all` 1/n of the whole set."""
    if config.data.access == "all":
        return proportions(manifest.train_examples, [1] * config.workers)
    return [sum(manifest.epoch_lens[place :: config.workers]) for place in range(config.workers)]


def check_batch(config: Config, most: int) -> None:
    """ConfigError where a mini-batch is larger than what the best supplied worker owns (examples)."""
    if config.worker_batch > most:
        largest = most * config.workers if config.batch == "global" else most
        raise ConfigError(
            f"batch_size is {config.batch_size:,}, which makes {config.worker_batch:,} examples for each worker, but no worker "
            f"has more than {most:,} in its shards. Set batch_size to {largest:,} or less, or take fewer workers."
        )


def work(start: Start) -> int:
    """Runs a worker; returns the exit code."""
    return run_process(start, lambda around: worker_of(start, around).run())


def worker_of(start: Start, around: Surroundings, replica: Replica | None = None) -> Worker:
    """The worker that was told `start` and found `around`."""
    return Worker(
        start.config, start.name, around.shards, around.addresses, start.token, start.device, around.stop, around.say,
        around.registry, replica, (start.peer_host, start.peer_port),
    )  # fmt: skip
