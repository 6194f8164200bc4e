"""A worker that trains a linear model over sparse rows: it pushes the changes of its batches [Hogwild], or gradients for the
servers' optimizer. Each server gets the part of an update that lies in its slice."""

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paceline.core.chief.leases import NOTHING
from paceline.core.chief.workers import WorkerPhase
from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, Fit, Longs, score
from paceline.core.linear.one_vs_rest import AnyModel, linear_model
from paceline.core.linear.sparse import decode_places, distinct
from paceline.core.linear.stopping import StoppingRule
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import build_policy, push_batches
from paceline.core.policies.policy_in_force import PolicyInForce
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Places, Sparse, Vector
from paceline.data.linear_model import shapes_of
from paceline.data.shards import Shards
from paceline.rpc.conversions import newest_switch, switch_value
from paceline.rpc.transport import decoded
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.run_service_pb2 import SeatReply
from paceline.v1.switch_pb2 import Switch
from paceline.worker.command_line import ToldWorker
from paceline.worker.exchange.parameter_client import ParameterClient
from paceline.worker.exchange.server_link import Link
from paceline.worker.linear.linear_rows import LinearData, Rows
from paceline.worker.membership.member import Member
from paceline.worker.startup.run_process import run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.step_result import Step


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """What came back from one server: weights by their places in the whole model; None: the slice must be pulled."""

    head: pb.PullHead
    weights: Sparse | None


class SparseClient(ParameterClient):
    """As `ParameterClient`; slices are one range each."""

    def begin_sparse(
        self,
        clock: int,
        view: int,
        update: Sparse,
        examples: int,
        bases: Sequence[Base],
        wanted: Places | None = None,
        spared: Collection[int] = (),
    ) -> Callable[[], list[Answer]]:
        """Pushes one clock's update (`examples` 0: an empty one), cut by slices; what is returned waits for the answers. They
        bring the weights that are wanted, or without such all that differ from `bases`, the weights it was computed on.
        `spared`: servers that get an empty push."""

        def exchange(link: Link) -> Answer:
            start, stop = bounds(link)
            own, counted = within(update, start, stop), examples
            if link.index in spared:
                own, counted = Sparse(own.places[:0], own.values[:0], stop - start), 0
            asked = None if wanted is None else _cut(wanted, start, stop) - start
            found = link.push_sparse(clock, view, own, counted, bases[link.index], asked)
            return Answer(found.head, self._weights(link, found, asked))

        return self._begin(exchange, self.parting.begin_push())

    def pull_slices(self, target: Vector, servers: Sequence[int] | None = None, version: int | None = None) -> None:
        """Receives some servers' slices (None: all) into the flat model."""

        def pull(link: Link) -> None:
            if servers is None or link.index in servers:
                link.pull(version, target)

        self._everywhere(pull)

    def _weights(self, link: Link, found: pb.PushPullSparseReply, wanted: Places | None) -> Sparse | None:
        if found.all:
            return None
        start, stop = bounds(link)
        who = f"server {link.index}"
        places = wanted if wanted is not None else decode_places(found.places, stop - start, who)
        values = decoded(found.values, self._pull_codec, len(places), who)
        return Sparse(places + start, values, self._total)


def bounds(link: Link) -> tuple[int, int]:
    """First element of the link's slice and the one after its last."""
    return (link.ranges[0].start, link.ranges[0].stop) if link.ranges else (0, 0)


def within(update: Sparse, start: int, stop: int) -> Sparse:
    """The part of an update that lies in a slice, by its places there."""
    first, last = np.searchsorted(update.places, (start, stop))
    return Sparse(update.places[first:last] - start, update.values[first:last], stop - start)


def _cut(places: Places, start: int, stop: int) -> Places:
    first, last = np.searchsorted(places, (start, stop))
    return places[first:last]


class LinearWorker(Member):
    """Keeps a part of each of its shards for validation, and all weights, as far as it knows them."""

    client_kind = SparseClient
    client: SparseClient

    def __init__(self, around: Surroundings, shards: Shards) -> None:
        config = around.config
        plan = make_plan(shapes_of(shards.manifest, config.svm.intercept), config.servers, config.plan)
        self.data = LinearData(config, shards)
        self._width = plan.total
        super().__init__(around, shards, plan)

    def epoch_lens(self) -> list[int]:
        return self.data.epoch_lens()

    @property
    def train_examples(self) -> int:
        return self.data.train_examples

    @property
    def clock_batch(self) -> int:
        return self.config.worker_batch * push_batches(self.config)

    def sizes(self, mine: Sequence[int]) -> list[int]:
        return self.data.sizes(mine)

    def first_weights(self) -> Vector:
        return np.zeros(self._width, np.float32)

    def train(self, clock: int, place: int, seat: SeatReply) -> None:
        mine = self.shards_of(place)
        in_force = PolicyInForce(build_policy(self.config.policy), switch_value(seat.switch))
        rows = self.data.rows(mine)
        examples, train = rows.examples, rows.train
        weights = np.zeros(self._width, np.float32)
        self.client.pull_start(in_force, weights, clock + seat.handicap)
        fit = Fit.of(examples, self.config.svm.intercept) if self.config.svm.steps == "fitted" else None
        decays = self.config.svm.objective.decays(self.data.counts)
        model = linear_model(weights, self.data.classes, self.data.objective, decays, tracks=True, fit=fit)
        self.say("training", clock=clock, view=seat.view, shards=mine, examples=len(train))
        loop = Loop(self, model, fit, rows, place, in_force, seat)
        loop.run(clock, self._slowness(place).delay)


class Batch(NamedTuple):
    """The mini-batches of one clock."""

    examples: Examples
    rows: Longs
    """Of these examples."""
    has: tuple[int, ...] = ()
    """Servers that have them already."""
    is_idle: bool = False
    """Nothing is left to compute."""


class LinearBatches:
    """The mini-batches of a seat, from its shards and from others that it takes over."""

    def __init__(self, worker: LinearWorker, rows: Rows, place: int) -> None:
        """`rows`: those of the seat's shards."""
        self._worker = worker
        self._nothing = Batch(rows.examples, np.zeros(0, np.int64), is_idle=True)
        self._way = worker.way(place)
        self._opened = {place: (rows, worker.sampler(place, worker.shards_of(place)))}
        """By place, the rows and the order of shards that it has come to."""

    def at(self, clock: int) -> Batch:
        """Those of a clock; a clock to come is leased, too."""
        lease = self._way.lease(clock - 1, 1)
        if lease.stream == NOTHING:
            return self._nothing
        if lease.stream not in self._opened:
            shards = self._worker.shards_of(lease.stream)
            self._worker.take_over(lease.stream, shards)
            self._opened[lease.stream] = self._worker.data.rows(shards), self._worker.sampler(lease.stream, shards)
        rows, sampler = self._opened[lease.stream]
        return Batch(rows.examples, rows.train[sampler.indices(lease.rows(clock).start + 1)], lease.has)

    def pause(self) -> None:
        """Waits a moment, since nothing is left just now."""
        self._worker.pause()


class Loop:
    """Batches, pushes and replies of one seat. Where the policy lets it and the run asks for it, the next batches are computed
    while a push is on its way."""

    def __init__(
        self,
        worker: LinearWorker,
        model: AnyModel,
        fit: Fit | None,
        rows: Rows,
        place: int,
        in_force: PolicyInForce,
        seat: SeatReply,
    ) -> None:
        self._worker = worker
        self._model = model
        self._batches = LinearBatches(worker, rows, place)
        self._sampler = worker.sampler(place, worker.shards_of(place))
        self._examples, self._own, self._train, self._validation = rows
        self._in_force = in_force
        self._view = seat.view
        self._incarnation = worker.incarnation
        self._client = worker.client
        self._config = worker.config
        self._progress = worker.progress
        self._classes = worker.data.classes
        self._fit = fit
        self._members = 1
        self._join(self._config.workers)
        optimizer = build_optimizer(self._config.optimizer)
        self._rule: StoppingRule | None = None
        if self._config.svm.stopping is not None and self._config.svm.stop == "own":
            self._rule = self._config.svm.stopping.build(optimizer.lr)
        self._gradient: Sparse | None = None
        """Of the newest batches, where the servers step."""
        self._servers_step = optimizer.sparse
        self._sent: Step | None = None
        """The push that is answered next."""
        self._began = time.monotonic()

    def run(self, clock: int, delay: Callable[[int], None]) -> None:
        """Trains until the servers say that this worker's last clock has come, or until its own losses have settled."""
        end: Callable[[], list[Answer]] | None = None
        while True:
            clock += 1
            self._progress.enter(WorkerPhase.DATA)
            batch, bases = self._batches.at(clock), self._client.bases
            self._compute(clock, batch, delay)
            self._progress.enter(WorkerPhase.EXCHANGE)
            if end is not None and self._take(clock - 1, end):
                break
            end = self._push(clock, batch, bases)
            is_end = self._sampler.is_end(clock)
            if is_end or not self._overlaps or self._client.parting.is_over:
                is_last, end = self._take(clock, end), None
                if is_last:
                    break
                self._client.parting.check(owes=False)
            if is_end and self._has_settled(clock):
                self._worker.say("the validation loss has settled; leaving", clock=clock)
                break
        self._worker.say("done", clock=clock, retries=self._client.retries)

    @property
    def _overlaps(self) -> bool:
        """Whether batches are computed while a push is on its way: asked for, and the policy allows it."""
        return self._config.overlap and self._in_force.policy.overlaps

    def _compute(self, clock: int, batch: Batch, delay: Callable[[int], None]) -> None:
        if batch.is_idle and not self._in_force.policy.rounds:
            self._batches.pause()
        self._progress.enter(WorkerPhase.COMPUTE)
        began = time.monotonic()
        if self._servers_step:
            self._gradient = self._model.gradient(batch.examples, batch.rows)
        elif len(batch.rows):
            self._model.step(batch.examples, batch.rows, self._config.worker_batch, self._client.lr)
        delay(clock)
        self._progress.computed(len(batch.rows), time.monotonic() - began)

    def _push(self, clock: int, batch: Batch, bases: Sequence[Base]) -> Callable[[], list[Answer]]:
        """Sends what has changed since the last push. `bases`: the weights that it was computed on."""
        moved = self._model.moves() if self._gradient is None else self._gradient
        if not np.isfinite(moved.values).all():
            raise diverged()
        count, wanted = len(batch.rows), self._wanted(clock)
        self._sent = Step(moved.values, math.nan, count, True)
        self._progress.sparse(len(moved.places), len(self._model.weights))
        return self._client.begin_sparse(clock, self._view, moved, count, bases, wanted, batch.has)

    def _wanted(self, clock: int) -> Places | None:
        """The places of the batches that are computed after the reply; None: all that have changed."""
        if self._config.svm.pull == "changed":
            return None
        ahead = 2 if self._overlaps else 1
        batch = self._batches.at(clock + ahead)
        found = touched(batch.examples, batch.rows)
        if self._config.svm.intercept and len(batch.rows):
            found = np.append(found, batch.examples.width)
        if self._classes == 2:
            return found
        each = len(self._model.weights) // self._classes
        return np.concatenate([found + number * each for number in range(self._classes)])

    def _take(self, clock: int, end: Callable[[], list[Answer]]) -> bool:
        """Waits for the answers and applies their weights; returns whether this clock is the last."""
        answers = end()
        for answer in answers:
            if answer.weights is not None:
                self._model.rebase(answer.weights.places, answer.weights.values)
        if unknown := [server for server, answer in enumerate(answers) if answer.weights is None]:
            self._refresh(unknown)
        heads = [answer.head for answer in answers]
        self._join(max(head.members for head in heads))
        self._progress.stepped(clock, self._sampler.position(clock).epoch, self._sent, heads, 1.0)
        if any(head.stop for head in heads):
            return True
        if not self._adopt(newest_switch(heads)):
            self._client.check_level(self._in_force, [head.version for head in heads])
        return False

    def _join(self, members: int) -> None:
        """Sets the number of workers."""
        if self._fit is not None and members != self._members:
            self._members = members
            self._model.join(self._fit.shares(members, self._worker.clock_batch) if members > 1 else None)

    def _refresh(self, servers: Sequence[int] | None = None, version: int | None = None) -> None:
        """Takes over whole slices (None: all), once they have come to this version."""
        pulled = np.zeros(len(self._model.weights), np.float32)
        self._client.pull_slices(pulled, servers, version)
        for link in self._client.links:
            if servers is None or link.index in servers:
                start, stop = bounds(link)
                self._model.rebase(np.arange(start, stop), pulled[start:stop])

    def _adopt(self, message: Switch) -> bool:
        """Continues under another policy, from the weights that it begins with
        (docs/understand/rounds.md#changes-of-policy); returns whether there is one."""
        switch = switch_value(message)
        if switch is None or not self._in_force.adopt(switch):
            return False
        self._view = max(self._view, message.view)
        self._refresh(version=switch.version)
        return True

    def _has_settled(self, clock: int) -> bool:
        """Reports the epoch's results; returns whether the worker should stop by itself."""
        self._progress.enter(WorkerPhase.COMPUTE)
        epoch = self._sampler.position(clock).epoch
        if self._config.svm.pull == "wanted":
            self._refresh()
        how = self._model.weights, self._worker.data.objective
        trained = score(self._examples, *how, self._train, self._classes, self._own)
        facts = {"loss": trained.total, "accuracy": trained.accuracy}
        if len(self._validation):
            found = score(self._examples, *how, self._validation, self._classes, self._own)
            facts |= {"validation_loss": found.total, "validation_accuracy": found.accuracy}
        self._worker.say("epoch", epoch=epoch, seconds=round(time.monotonic() - self._began, 3), **facts)
        self._progress.figure(**facts)
        if not len(self._validation) or not self._config.svm.judges(epoch, self._config.epochs):
            return False
        if self._rule is not None:
            return self._rule.add(facts["validation_loss"])
        self._worker.chief.validated(self._incarnation, epoch, facts["validation_loss"], len(self._validation))
        return False


def diverged() -> ConfigError:
    """The message about weights that can't be pushed."""
    return ConfigError("Training has diverged: some weights are NaN or infinite. Lower optimizer.lr.")


def touched(examples: Examples, rows: Longs) -> Places:
    """The features that these rows have."""
    starts = examples.starts[rows]
    lengths = examples.starts[rows + 1] - starts
    ends = np.cumsum(lengths)
    found = examples.indices[np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1:].sum())]
    return distinct(np.sort(found)).astype(np.int64)


def work(start: Start[ToldWorker]) -> int:
    """Runs a worker; returns the exit code."""
    return run_process(start, lambda around, shards: LinearWorker(around, shards).run())
