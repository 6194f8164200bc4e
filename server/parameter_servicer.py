"""The server's side of the data plane: checks messages, assembles pushes, sends weights, and shuts out workers that repeatedly
send invalid pushes."""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

import numpy as np

from paceline.core.codecs.codec import Codec, load_codec
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush, NotYet, PacelineError, PermissionDenied, PlanMismatch, TryAgain
from paceline.core.linear.sparse import decode_places, encode_places
from paceline.core.settings.config import NAME
from paceline.core.values import Base, Dense, Empty, Places, Published, Push, Reply, Sparse, Update, Vector
from paceline.rpc.conversions import manner_value, position_value, switch_message
from paceline.rpc.enums import number_of
from paceline.rpc.protocol_version import check_protocol
from paceline.rpc.roles import speak_for
from paceline.rpc.transport import IsThere, Outgoing, Upload, decoded, encoded, weights_codec
from paceline.rpc.wire import most_head
from paceline.server.metrics import ServerMetrics
from paceline.server.outgoing_weights import CopyOnDisk, OutgoingWeights
from paceline.server.push_assembly import Assembly
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.v1 import parameter_service_pb2 as pb

_MOST = 1 << 19
"""Most places in a sparse reply; beyond that the reply asks for a pull of the whole slice (4 MiB at 8 bytes each)."""
_WAIT = Outgoing(pb.PullHead(outcome=pb.OUTCOME_WAIT), iter(()))
STRIKES = 10
"""Number of refused pushes after which a worker may no longer push."""


class Quarantine:
    """Counts invalid pushes for each worker, also over restarts of the server. Thread-safe."""

    def __init__(
        self, before: Mapping[str, int] | None = None, keep: Callable[[dict[str, int]], None] = lambda strikes: None
    ) -> None:
        """`before`: the counts of an earlier process; `keep`: writes them down."""
        self._strikes = dict(before or {})
        self._keep = keep
        self._lock = threading.Lock()

    def check(self, worker: str) -> None:
        """Raises PermissionDenied if the worker is shut out."""
        if self._strikes.get(worker, 0) >= STRIKES:
            raise PermissionDenied(
                f"{worker} sent {STRIKES} pushes with wrong sizes, values or bases, and is shut out. Its log names "
                "the first of them. Fix the worker, then remove strikes.json from the servers' folders and start them again."
            )

    def strike(self, worker: str) -> None:
        """Counts another bad push."""
        with self._lock:
            self._strikes[worker] = self._strikes.get(worker, 0) + 1
            self._keep(dict(self._strikes))


class ParameterServicer:
    """Offers one slice to workers (see paceline.rpc.transport.ParameterService). Thread-safe."""

    def __init__(
        self,
        driver: SliceDriver,
        snapshots: Snapshots,
        metrics: ServerMetrics,
        say: Callable[..., None],
        quarantine: Quarantine,
        weights: OutgoingWeights,
    ) -> None:
        self._driver = driver
        self._weights = weights
        self._snapshots = snapshots
        self._metrics = metrics
        self._say = say
        self._part_bytes = driver.config.part_bytes
        self._quarantine = quarantine
        self.lane_port = 0
        """The lane's port, sent to workers; 0 without a lane."""

    def resume(self, request: pb.ResumeRequest) -> pb.ResumeReply:
        """Fixes or checks the plan, and returns the worker's state on the slice."""
        _check_name(request.worker)
        check_protocol(request.protocol, request.worker, f"server {self._driver.index}")
        shapes = [(tensor.name, tuple(tensor.shape)) for tensor in request.tensors]
        self._driver.adopt(shapes, request.plan_hash, request.worker)
        arrived = self._driver.arrived(request.worker, request.upload)
        standing = self._driver.resume(request.worker, request.incarnation)
        if request.clock > standing.clock:
            lacks = standing.clock + 1, request.clock
            self._say("lacks pushes, which their worker sends again", worker=request.worker, clocks=lacks)
        return pb.ResumeReply(
            term=standing.term,
            clock=standing.clock,
            durable=standing.durable,
            version=standing.version,
            phase=number_of(pb.SlicePhase.DESCRIPTOR, standing.phase),
            oldest=standing.oldest,
            lane_port=self.lane_port,
            position=standing.position,
            arrived=arrived,
        )

    @contextmanager
    def initialise(self, head: pb.PushHead, is_there: IsThere) -> Iterator[Upload]:
        """Takes the first weights of the slice and saves them before it answers."""
        _check_name(head.worker)
        self._check(head)
        with closing(_FirstWeights(self, head, is_there)) as upload:
            yield upload

    @contextmanager
    def push(self, head: pb.PushHead, is_there: IsThere) -> Iterator[Upload]:
        """Takes one push; checks its head before it reserves memory."""
        with self._judged(head.worker):
            self._check(head)
            kind = _PartsOfPush if head.elements else _Empty
            with closing(kind(self, head, is_there)) as upload:
                yield upload

    @contextmanager
    def ask(self, request: pb.AskRequest, is_there: IsThere) -> Iterator[Outgoing]:
        """The answer to a push that was counted before."""
        push = request.push
        with self._judged(push.worker):
            self._check_model(push)
            reply = self._driver.ask(push.worker, push.incarnation, push.clock, is_there)
            with self.reply(push, reply, request.weights) as outgoing:
                yield outgoing

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply:
        """Takes one sparse push and answers with a few weights."""
        head = request.head
        with self._judged(head.worker):
            self._check_model(head)
            self.received(len(request.places) + len(request.values))
            update, base = self._update(request), Base(head.base_term, head.base_version)
            pushed = update.places if isinstance(update, Sparse) else np.empty(0, np.int64)
            return self._exchange(request, head, lambda: self.count(head, update, None, is_there), base, pushed)

    def ask_sparse(self, request: pb.AskSparseRequest, is_there: IsThere) -> pb.AskSparseReply:
        """The answer to a sparse push that was counted before."""
        push = request.push
        with self._judged(push.worker):
            self._check_model(push)
            self.received(len(request.places))
            pushed, base = self._places(request.places, push.worker), Base(request.base_term, request.base_version)
            ask = partial(self._driver.ask, push.worker, push.incarnation, push.clock, is_there)
            return pb.AskSparseReply(answer=self._exchange(request, push, ask, base, pushed))

    def _exchange(
        self,
        request: pb.PushPullSparseRequest | pb.AskSparseRequest,
        push: pb.PushHead | pb.EarlierPush,
        count: Callable[[], Reply | None],
        base: Base,
        pushed: Places,
    ) -> pb.PushPullSparseReply:
        """What `count` gives for a push, with the weights that the request wants."""
        wanted = None
        if request.HasField("wanted"):
            self.received(len(request.wanted))
            wanted = self._places(request.wanted, push.worker)
        found = self._driver.exchange(push.worker, push.clock, count, base, wanted, pushed, _MOST)
        if found is None:
            return pb.PushPullSparseReply(head=pb.PullHead(outcome=pb.OUTCOME_WAIT))

        reply, weights = found
        answer = pb.PushPullSparseReply(head=self._answer(reply))
        if weights is None:
            answer.all = True
            return answer
        answer.values = encoded(weights.values, weights_codec(push.pull_codec))
        if wanted is None:
            answer.places = encode_places(weights.places)
        self._metrics.sent.inc(len(answer.values) + len(answer.places))
        return answer

    def _update(self, request: pb.PushPullSparseRequest) -> Update:
        """That of a sparse push, checked."""
        head, codec = request.head, load_codec(request.head.codec or "none")
        places = self._places(request.places, head.worker)
        if head.dropped or not head.examples:
            return Empty(self.length)
        return Sparse(places, decoded(request.values, codec, len(places), head.worker), self.length)

    def _places(self, steps: bytes, worker: str) -> Places:
        """Places that a worker names, checked."""
        if self._driver.config.updates != "sparse":
            raise BadPush(
                f"{worker} sent a sparse push, but this run's updates are dense. Set updates alike everywhere."
            )
        return decode_places(steps, self.length, worker)

    @contextmanager
    def pull(self, request: pb.PullRequest, is_there: IsThere) -> Iterator[Outgoing]:
        """Weights of one version, for the evaluator and for workers that start."""
        _check_name(request.reader)
        if self._driver.plan is None:
            raise NotYet("No worker has told this server the model's shapes yet.")
        self._driver.plan.check(request.plan_hash, request.reader)
        version = request.version if request.HasField("version") else None
        found: Published | CopyOnDisk | None = self._weights.recent(request.mean) if version is None else None
        found = found or self._driver.pull(version, is_there, request.mean)
        if found is None:
            yield _WAIT
            return
        head = pb.PullHead(term=self._driver.term, version=found.version, lr=self._driver.lr, lane_port=self.lane_port)
        with self._sending(found, head, request.codec, request.reader, request.mean) as outgoing:
            yield outgoing

    # used by the uploads
    @contextmanager
    def reply(self, push: pb.PushHead | pb.EarlierPush, reply: Reply | None, wants_weights: bool) -> Iterator[Outgoing]:
        """The answer to a push; its weights stay pinned while it is sent."""
        if reply is None:
            yield _WAIT
            return
        answer = self._answer(reply)
        if wants_weights:
            with self._sending(reply.weights, answer, push.pull_codec, push.worker) as outgoing:
                yield outgoing
        else:
            self._driver.release(reply.weights)
            yield Outgoing(answer, iter(()))

    def _answer(self, reply: Reply) -> pb.PullHead:
        """The scalars of a reply, also counted in the metrics."""
        waited = time.monotonic() - reply.pushed_at
        self._metrics.wait.observe(waited)
        self._metrics.staleness.observe(reply.staleness)
        if reply.reason:
            self._metrics.rejected.labels(reply.reason).inc()
        return pb.PullHead(
            outcome=number_of(pb.Outcome.DESCRIPTOR, reply.outcome),
            reason=reply.reason,
            term=reply.term,
            version=reply.weights.version,
            clock=reply.clock,
            durable=reply.durable,
            staleness=reply.staleness,
            others=reply.others,
            members=reply.members,
            lr=reply.lr,
            waited=waited,
            stop=reply.stop,
            switch=switch_message(reply.switch, reply.view),
            lane_port=self.lane_port,
        )

    def count(
        self, head: pb.PushHead, update: Update, values: Vector | None, is_there: IsThere, waited: float = 0.0
    ) -> Reply | None:
        """Hands a complete push to the slice. `waited`: time that it has waited for others' already (seconds)."""
        base = Base(head.base_term, head.base_version)
        now, manner = time.monotonic() - waited, manner_value(head)
        told = head.worker, head.incarnation, head.clock, update, head.examples, base, head.view
        push = Push(*told, now, manner, head.note.round, head.dropped, position_value(head))
        return self._driver.push(push, values, is_there)

    def take_buffer(self, head: pb.PushHead, is_there: IsThere) -> tuple[Vector, float]:
        return self._driver.take_buffer(head, is_there)

    def give_back(self, worker: str, values: Vector, filled: int) -> None:
        self._driver.give_back(worker, values, filled)

    def received(self, encoded_bytes: int) -> None:
        self._metrics.received.inc(encoded_bytes)

    def keep_first(self, weights: Vector, digest: bytes) -> int:
        """Takes the complete first weights, and saves them before any worker trains on them."""
        if self._driver.initialise(weights, digest):
            try:
                self._snapshots.write_now()
            finally:
                self._driver.first_are_written()
        return self._driver.term

    @property
    def most_head(self) -> int:
        """Most bytes of a push's head; before there is a plan, of one that names no tensors."""
        plan = self._driver.plan
        return most_head(0 if plan is None else len(plan.shapes))

    @property
    def length(self) -> int:
        """Elements of the slice."""
        return self._driver.model_slice.length

    def coding(self, codec: Codec) -> SliceCodec:
        return self._driver.coding(codec)

    @contextmanager
    def _judged(self, worker: str) -> Iterator[None]:
        """Around the work on a worker's push, or on its question for one. Counts what is refused; where that is invalid it
        also counts against a member, who is shut out for several."""
        _check_name(worker)
        self._quarantine.check(worker)
        try:
            yield
        except PacelineError as error:
            if not isinstance(error, TryAgain):
                self._metrics.rejected.labels(type(error).__name__).inc()
            if isinstance(error, BadPush | PlanMismatch) and self._driver.clocks.seat(worker) is not None:
                self._quarantine.strike(worker)
            raise

    def _check(self, head: pb.PushHead) -> None:
        self._check_model(head)
        load_codec(head.codec or "none")
        if head.elements not in (0, self.length):
            raise BadPush(
                f"{head.worker} announces {head.elements:,} values for server {self._driver.index}, whose slice holds "
                f"{self.length:,}. Both must use the same plan: compare 'servers' and 'task' in their configs."
            )
        if not head.elements and self.length and head.examples and not head.dropped:
            raise BadPush(f"{head.worker} announces {head.examples:,} examples, but no values; an empty update has 0.")

    def _check_model(self, push: pb.PushHead | pb.EarlierPush) -> None:
        """NotYet before there is a plan, PlanMismatch for another one; BadPush where its weights can't travel so."""
        if self._driver.plan is None:
            raise NotYet("No worker has told this server the model's shapes yet.")
        self._driver.plan.check(push.plan_hash, push.worker)
        weights_codec(push.pull_codec)

    @contextmanager
    def _sending(
        self, weights: Published | CopyOnDisk, head: pb.PullHead, codec_name: str, who: str, is_mean: bool = False
    ) -> Iterator[Outgoing]:
        with self._weights.parts(weights, codec_name, self._part_bytes, who, is_mean) as (codec, parts):
            head.codec = codec.codec.name
            head.elements = self.length
            self._metrics.sent.inc(codec.most_bytes(self.length))
            yield Outgoing(head, parts)


class _Empty:
    """A push without values."""

    def __init__(self, servicer: ParameterServicer, head: pb.PushHead, is_there: IsThere) -> None:
        self._servicer = servicer
        self._head = head
        self._is_there = is_there

    def take(self, offset: int, data: memoryview) -> None:
        raise BadPush(f"{self._head.worker} announced no values, but sent {len(data)} bytes.")

    def buffer(self, offset: int, length: int) -> None:
        raise BadPush(f"{self._head.worker} announced no values, but sent {length} bytes.")

    def finish(self, wants_weights: bool) -> AbstractContextManager[Outgoing]:
        reply = self._servicer.count(self._head, Empty(self._servicer.length), None, self._is_there)
        return self._servicer.reply(self._head, reply, wants_weights)

    def close(self) -> None:
        return


class _PartsOfPush:
    """An incoming push, in a buffer of the pool."""

    def __init__(self, servicer: ParameterServicer, head: pb.PushHead, is_there: IsThere) -> None:
        self._servicer = servicer
        self._head = head
        self._is_there = is_there
        self._buffer: Vector | None
        self._buffer, self._waited = servicer.take_buffer(head, is_there)
        coding = servicer.coding(load_codec(head.codec or "none"))
        self._assembly = Assembly(head.worker, self._buffer, coding, head.start)

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return self._assembly.buffer(offset, length)

    def take(self, offset: int, data: memoryview) -> None:
        self._servicer.received(len(data))
        self._assembly.take(offset, data)

    def finish(self, wants_weights: bool) -> AbstractContextManager[Outgoing]:
        self._assembly.check_complete()
        values = self._buffer
        self._buffer = None
        dense = Dense(self._assembly.values)
        reply = self._servicer.count(self._head, dense, values, self._is_there, self._waited)
        return self._servicer.reply(self._head, reply, wants_weights)

    def close(self) -> None:
        """Returns the buffer if the push was not completed, with what has come."""
        self._give_back(self._assembly.filled)

    def _give_back(self, filled: int) -> None:
        if self._buffer is not None:
            self._servicer.give_back(self._head.worker, self._buffer, filled)
            self._buffer = None


class _FirstWeights(_PartsOfPush):
    """The incoming first weights, in a buffer of the pool; the slice gets a copy."""

    @contextmanager
    def finish(self, wants_weights: bool) -> Iterator[Outgoing]:
        self._assembly.check_complete()
        weights, digest = self._assembly.values, self._head.digest
        if hashlib.sha256(weights.data).digest() != digest:
            raise BadPush("The first weights don't have the digest that was announced. Send them again.")
        yield Outgoing(pb.PullHead(term=self._servicer.keep_first(weights.copy(), digest)), iter(()))
        self._give_back(0)


def _check_name(worker: str) -> None:
    """BadPush: it is none; PermissionDenied: it is another worker's."""
    if not NAME.fullmatch(worker):
        raise BadPush(f"{worker!r} is no name for a worker: small letters, digits and inner hyphens, like worker-2.")
    speak_for(worker)
