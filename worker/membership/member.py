"""A worker's membership, whatever it trains: joins, takes its seat, trains and leaves; joins again if it loses its seat."""

import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

from paceline.core.chief.common_snapshots import Returns
from paceline.core.chief.warnings import OTHER_BITS
from paceline.core.chief.workers import WorkerPhase
from paceline.core.errors import Behind, ConfigError, Fenced, PacelineError, Stopped
from paceline.core.fault import LINK_SECONDS
from paceline.core.policies.policy import build_policy
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.settings.config import Config
from paceline.core.slice.lost_slices import lost
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import Phase
from paceline.core.values import Vector
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import Shards
from paceline.rpc.conversions import switch_value
from paceline.rpc.enums import phase_of
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.run_service_pb2 import HeartbeatReply, JoinReply, SeatReply
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.membership.calls_to_chief import ChiefClient, Heartbeat
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.emulated_slowness import Slowness
from paceline.worker.training.status_and_metrics import Progress
from paceline.worker.training.way import Ask, Way

_IDLE = 0.1
"""Time between two looks whether others have left something undone (seconds)."""
_PATIENCE = 10.0
"""Time that a worker without place 0 gives the others to send the first weights (seconds)."""


class Member(ABC):
    """One worker of a run."""

    client_kind: type[ParameterClient] = ParameterClient

    def __init__(self, around: Surroundings, shards: Shards, plan: SlicePlan, peer: str = "") -> None:
        """`peer`: the address of this worker's local model; empty if it has none."""
        self.config = around.config
        self.name = around.name
        self.say = around.say
        self._shards = shards
        self._stop = around.stop
        around.outages.expose(around.registry)
        self.chief = ChiefClient(around, peer)
        self.progress = Progress(around.registry, around.say)
        self.incarnation = 0
        self._returns = Returns()
        self._lens: list[int] = []
        """Examples that one epoch takes at each place; known from the join on."""
        self._steps = 0
        """Mini-batches of an epoch, likewise."""
        self.position: int | None = None
        """Mini-batches that its script had done when it took its seat; None: the servers don't know."""
        self.client = self.client_kind(around, plan, self.progress.retried, around.registry)
        self.progress.traffic = lambda: dict(zip(("sent_bytes", "received_bytes"), self.traffic(), strict=True))

    def run(self) -> None:
        """Trains until the run is over; joins again when its seat is lost. Fenced if another process holds it."""
        manifest, was_fenced = self._shards.manifest, False
        lens = self._lens = self.epoch_lens()
        check_batch(self.config, max(lens))
        steps = self._steps = steps_per_epoch(lens, [[place] for place in range(len(lens))], self.clock_batch)
        while True:
            facts = self.train_examples, steps, manifest.fingerprint, len(manifest.shards)
            joined = self.chief.join(was_fenced, *facts, self.frozen, self.text_hash)
            if joined is None:
                self.say("the run is over; nothing left to do")
                self.late()
                return
            try:
                self._session(joined)
                return
            except Fenced as error:
                self.say("joining anew", why=str(error))
                was_fenced = True

    @property
    def frozen(self) -> tuple[float, float]:
        """What JoinRequest says of parameters that nobody trains; a task's follow from its seed."""
        return 0.0, 0.0

    @property
    def text_hash(self) -> int:
        """What JoinRequest says of the order of sets; a task's data are made by one process."""
        return 0

    @abstractmethod
    def epoch_lens(self) -> list[int]:
        """Examples that one epoch takes at each place."""

    @property
    @abstractmethod
    def train_examples(self) -> int:
        """Examples of all shards that are trained on; the same for all workers."""

    @property
    @abstractmethod
    def clock_batch(self) -> int:
        """The most examples behind one clock."""

    @abstractmethod
    def sizes(self, mine: Sequence[int]) -> list[int]:
        """Examples to train on in each of these shards."""

    @abstractmethod
    def first_weights(self) -> Vector:
        """The whole model as it starts, for this worker to send if it must."""

    @abstractmethod
    def train(self, clock: int, place: int, seat: SeatReply) -> None:
        """From the clock after this one to the last one."""

    def shards_of(self, place: int) -> list[int]:
        """The numbers of the shards that belong to a place in the pool."""
        total = len(self._shards)
        return list(range(total) if self.config.data.access == "all" else range(place, total, self.config.workers))

    def sampler(self, place: int, shards: Sequence[int]) -> Sampler:
        """The mini-batches of a place, whose shards these are; the same in every worker."""
        return Sampler(
            self.sizes(shards),
            self.clock_batch,
            self._steps,
            self.config.seed,
            f"worker-{place}",
            self._lens[place],
            shuffle=self._shards.shuffle,
            fills=self._shards.fills,
        )

    def way(self, place: int) -> Way:
        """Which mini-batches it computes at which clock."""
        is_own = self.config.budget == "per_worker" and not self.config.is_script
        end, ask = self.config.epochs * self._steps if is_own else sys.maxsize, self._ask()
        return Way(place, ask, end) if ask is None else Way(place, ask, end, self._give_back)

    def _give_back(self, after: int, width: int, last: int) -> None:
        try:
            self.chief.give_back(self.incarnation, after, width, last)
        except PacelineError as error:
            self.say("can't return mini-batches, so the part of its clock is not pushed", why=str(error))
            raise Stopped("The worker got a signal to stop.") from error

    def _ask(self) -> Ask | None:
        """How it leases mini-batches; None where it has those of its stream, and no others."""
        config = self.config
        if not config.data.leases or (config.budget == "per_worker" and not config.is_script):
            return None
        return lambda after, width, most: self.chief.lease(self.incarnation, after, width, most, self._own_rows)

    @property
    def _own_rows(self) -> int:
        """Mini-batches that each seat's shards give in all epochs of its script; 0: it has none."""
        return 0

    def take_over(self, place: int, shards: Sequence[int]) -> None:
        """Another place's mini-batches come from now on. Raises DataError where its shards are damaged."""
        self.say("computes mini-batches of another seat, too", seat=place, shards=list(shards))
        for shard in shards:
            self._shards.verify(shard)

    def pause(self) -> None:
        """Waits a moment, since nothing is left just now."""
        self._stop.wait(_IDLE)

    def left(self, incarnation: int) -> None:  # noqa: B027 - most have nothing to do
        """The worker has left; it may have something to do still."""

    def late(self) -> None:  # noqa: B027 - most have nothing to do
        """The run was over before this worker had a seat."""

    def _session(self, joined: JoinReply) -> None:
        """From Join to Leave."""
        heartbeat = Heartbeat(
            self.chief,
            joined.incarnation,
            every=self.config.heartbeat,
            state=self.progress.state,
            on_reply=self._heard,
            fenced=self.client.fenced,
            say=self.say,
            alarm=self.progress.alarm,
        )
        finished = keeps_seat = False
        self.incarnation = joined.incarnation
        try:
            for shard in self.shards_of(joined.seat):
                self._shards.verify(shard)
            self._take_seat(joined.incarnation, joined.seat)
            finished = True
        except BaseException as error:
            is_failure = getattr(error, "is_failure", isinstance(error, Exception))
            keeps_seat = self.config.on_lost_worker == "wait" and is_failure and not self.chief.is_told
            raise
        finally:
            self.progress.enter(WorkerPhase.DONE)
            heartbeat.close()
            if not keeps_seat:
                self.chief.leave(joined.incarnation, finished)
        self.left(joined.incarnation)

    def _take_seat(self, incarnation: int, place: int) -> None:
        """Takes the seat and trains to the last clock, as often as a server comes back without what it had answered."""
        while True:
            try:
                self._train_from_seat(incarnation, place)
                return
            except Behind as error:
                self._goes_back(error)

    def _train_from_seat(self, incarnation: int, place: int) -> None:
        """Trains from the smallest clock of all slices to the last one, and stays until no server can lose it any more, also
        where an earlier process has trained so far; returns at once when the run is over."""
        standings = self._ready(incarnation, place)
        clocks = [standing.clock for standing in standings]
        clock = min(clocks)
        slowest = standings[clocks.index(clock)]
        self.position = slowest.position if slowest.HasField("position") else None
        self.client.start_after(clock)
        self.progress.has_reached(max(clocks))
        self.progress.enter(WorkerPhase.WAITING)
        seat = self.chief.seat(incarnation, clock)
        if seat is None:
            return
        if self._is_beyond(standings, clock, seat) and self._all_go_back(incarnation, standings):
            self._train_from_seat(incarnation, place)
            return
        self._returns.trains()
        if not seat.HasField("last") or clock < seat.last:
            self.train(clock, place, seat)
        if not self.client.settle():
            self.say("leaves before all servers have written down its last pushes; see why they can't")

    def _is_beyond(self, standings: list[pb.ResumeReply], clock: int, seat: SeatReply) -> bool:
        """Whether a slice no longer has the weights that the next clock is computed on in lock-step."""
        policy = PolicyInForce(build_policy(self.config.policy), switch_value(seat.switch)).policy
        is_in_rounds = self.config.servers > 1 and policy.rounds
        return is_in_rounds and any(standing.oldest > clock + seat.handicap for standing in standings)

    def _all_go_back(self, incarnation: int, standings: list[pb.ResumeReply]) -> bool:
        """Makes all servers go back to their newest common snapshot. Logs it and returns False if there is none, or if it has
        not helped before."""
        versions = [standing.version for standing in standings]
        self.say("some servers have more rounds than others, and nobody has their pushes", versions=versions)
        if not self._returns.help([(standing.term, standing.clock) for standing in standings]):
            why = "some servers have lost pushes of an earlier process of this worker"
        elif self.chief.go_back(incarnation, [standing.term for standing in standings]):
            return True
        else:
            why = "the servers have no snapshot in common"
        self.say(f"{why}: the run goes on with the newest weights, but not with the same bits")
        self.progress.figure(**{OTHER_BITS: 1.0})
        self.client.may_differ = True
        return False

    def _goes_back(self, error: Behind) -> None:
        """A server has come back without pushes that are not retained: says that their mini-batches are computed again."""
        self.say("computes mini-batches again", why=str(error))

    def _ready(self, incarnation: int, place: int) -> list[pb.ResumeReply]:
        """This worker's state on every slice, once all have first weights; place 0 sends them."""
        start = time.monotonic()
        first = self.first_weights()
        while True:
            standings = self.client.attach(incarnation)
            empty = [server for server, standing in enumerate(standings) if phase_of(standing) == Phase.EMPTY]
            if not empty:
                return standings
            if any(standing.version for standing in standings):
                raise lost(empty)
            if place == 0 or time.monotonic() - start > _PATIENCE:
                self.client.initialise(first)
            elif self._stop.wait(0.1):
                raise Stopped("The worker got a signal to stop.")

    def traffic(self) -> tuple[int, int]:
        """Bytes of encoded values that were sent and received so far."""
        return self.client.traffic

    def _heard(self, reply: HeartbeatReply) -> None:
        """What the chief says with each heartbeat."""
        self.progress.fastest = reply.fastest
        if self.client.replayed:
            self.progress.has_replayed(self.client.replayed)
        self.client.catch_up(reply.terms)
        if self.client.emulated:
            self.client.emulated.hear(reply.seconds)
            self.progress.figure(**{LINK_SECONDS: self.client.emulated.waited})

    def _slowness(self, place: int) -> Slowness:
        return Slowness(self.config.slow, place, self.config.nominal_step, self.config.seed, self._stop.wait)


def check_batch(config: Config, most: int) -> None:
    """ConfigError where a mini-batch is larger than what the best supplied worker owns (examples)."""
    if config.worker_batch > most:
        largest = most if config.batch == "worker" else most * config.workers
        where = "of the data set" if config.is_script else "in its shards"
        raise ConfigError(
            f"batch_size is {config.batch_size:,}, which makes {config.worker_batch:,} examples for each worker, but no worker "
            f"has more than {most:,} {where}. Set batch_size to {largest:,} or less, or take fewer workers."
        )
