"""One worker from start to end: waits for shards and servers, joins, trains and leaves."""

import threading
import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry

from paceline.core.config import Config
from paceline.core.errors import Fenced, Stopped
from paceline.core.plan import make_plan
from paceline.core.policy import build_policy
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import Shards
from paceline.tasks.task import load_task
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.run_service_pb2 import JoinReply
from worker.chief import ChiefClient, Heartbeat
from worker.client import ParameterClient
from worker.link import no_snapshot
from worker.loop import Training, train
from worker.progress import Progress
from worker.replica import Replica
from worker.slowness import Slowness
from worker.start import Start, Surroundings, run_process

_PATIENCE = 10.0
"""Time that a worker without place 0 gives the others to send the first weights (seconds)."""


class Worker:
    """What one worker process is made of."""

    def __init__(
        self, config: Config, name: str, shards: Shards, addresses: list[str], token: str, device: str,
        stop: threading.Event, say: Callable[..., None], registry: CollectorRegistry,
    ) -> None:  # fmt: skip
        self.config, self.name, self._shards, self._stop, self._say = config, name, shards, stop, say
        deadline = time.monotonic() + config.deadline
        self.replica = Replica(load_task(config.task), device, config.seed)
        plan = make_plan(self.replica.shapes, config.servers, config.plan)
        self._chief = ChiefClient(addresses[0], token, config, name, deadline, stop, say)
        self._progress = Progress(registry)
        self._client = ParameterClient(
            addresses, token, plan, config, name, deadline, stop, say, self._progress.retried
        )
        self._policy = build_policy(config.policy)

    def run(self) -> None:
        """Trains until the run is over; joins anew when its seat is lost. Fenced when another process holds it."""
        manifest, was_fenced = self._shards.manifest, False
        sizes = manifest.sizes
        owned = [range(place, len(sizes), self.config.workers) for place in range(self.config.workers)]
        steps = steps_per_epoch(sizes, owned, self.config.batch_size)
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
            self._client.resume_after_restart, self._client.fenced, self._say,
        )  # fmt: skip
        finished = False
        try:
            mine = list(joined.shards)
            for shard in mine:
                self._shards.verify(shard)
            mine_sizes = [sizes[shard] for shard in mine]
            sampler = Sampler(mine_sizes, self.config.batch_size, steps, self.config.seed, self.name)
            self._train(joined.incarnation, joined.place, mine, sampler)
            finished = True
        finally:
            self._progress.enter("done")
            heartbeat.close()
            self._chief.leave(joined.incarnation, finished)

    def _train(self, incarnation: int, place: int, mine: list[int], sampler: Sampler) -> None:
        """Takes the seat and trains to the last clock; returns at once when the run is over before that."""
        clock = min(standing.clock for standing in self._ready(incarnation, place))
        self._client.start_after(clock)
        self._progress.enter("waiting")
        seat = self._chief.seat(incarnation, clock)
        if seat is None or (seat.HasField("last") and clock >= seat.last):
            return
        versions = self._client.pull(self.replica.local, clock + seat.handicap if self._policy.rounds else None)
        self.replica.refresh()
        self._say("training", clock=clock, versions=versions, view=seat.view, shards=mine)
        training = Training(
            self.replica, self._client, self._policy, sampler, [self._shards.shard(shard) for shard in mine],
            self._progress, self._slowness(place), self.config.seed, place, seat.view,
        )  # fmt: skip
        last = train(training, clock)
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

    def _slowness(self, place: int) -> Slowness:
        return Slowness(self.config.slow, place, self.config.nominal_step, self.config.seed, self._stop.wait)


def work(start: Start) -> int:
    """Runs a worker; returns the exit code."""

    def trained(around: Surroundings) -> None:
        Worker(
            start.config, start.name, around.shards, around.addresses, start.token, start.device, around.stop, around.say,
            around.registry,
        ).run()  # fmt: skip

    return run_process(start, trained)
