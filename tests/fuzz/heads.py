"""Heads and requests whose fields hold anything that their types allow, sent to a server on each transport by one of its two
workers. None may end the server, make a weight NaN or keep the other worker from training."""

import math
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import PacelineError
from paceline.core.linear.sparse import encode_places
from paceline.core.settings.config import Options
from paceline.core.slice.plan import make_plan
from paceline.core.values import Sparse
from paceline.rpc.auth import OPEN
from paceline.rpc.channel import call, open_channel
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.transport import Parts, encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from paceline.worker.linear.linear_worker import SparseClient
from tests.fuzz.cases import Spent
from tests.support.fake_service import Gathered, client
from tests.support.in_process import LENGTH, SHAPES, Cluster, Pusher, config_of, seated

HEADS = {"heads on the lane": "lane", "heads on grpcio": "grpc"}
"""Name of a fuzzer -> its transport."""
SERVERS: dict[str, dict[str, Any]] = {
    "adam": {"optimizer": Options(name="adam", lr=0.1)},
    "sgd": {"optimizer": Options(name="sgd", lr=0.5, momentum=0.9, weight_decay=0.1)},
    "sparse": {"updates": "sparse"},
}
"""What they are set to."""
TOGETHER = 200
"""Cases after which the run is looked at."""
_SOON = 30.0
_WHOLE = (
    0,
    1,
    2,
    3,
    39,
    40,
    41,
    127,
    255,
    2**16,
    2**31,
    2**31 + 1,
    2**32 - 1,
    2**40,
    2**53,
    2**53 + 1,
    2**63 - 1,
    2**64 - 1,
)
_NUMBERS = (
    0.0,
    -0.0,
    1.0,
    0.5,
    0.999,
    -1.0,
    2.0,
    1e-300,
    1e12,
    1e13,
    1e38,
    1e300,
    -1e300,
    math.inf,
    -math.inf,
    math.nan,
)
_SHORT = (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_ENUM)
_TEXTS = (
    "",
    "worker-0",
    "worker-7",
    "none",
    "topk",
    "bf16",
    "momentum",
    "betas",
    "weight_decay",
    "model",
    "\n",
    "x" * 300,
)


def run(kind: str, count: int, dice: random.Random, folder: Path) -> Spent:
    """Sends this number of cases on a transport, as many to each server. AssertionError says what the first bad one is."""
    said: Counter[str] = Counter()
    began, slowest = time.thread_time(), 0.0
    for name, settings in SERVERS.items():
        with target(kind, settings, folder / name) as sent:
            for _ in range(count // len(SERVERS)):
                before = time.thread_time()
                said[sent.case(dice)] += 1
                slowest = max(slowest, time.thread_time() - before)
            sent.look()
    return Spent(count, time.thread_time() - began, slowest, said)


@contextmanager
def target(kind: str, settings: dict[str, Any], folder: Path) -> Iterator["Target"]:
    """A server in this process that makes nobody wait, and shuts nobody out."""
    with ExitStack() as stack:
        stack.enter_context(patch("paceline.server.slice_driver.LONGEST_WAIT", 0.0))
        stack.enter_context(patch("paceline.server.parameter_servicer.STRIKES", 10**9))
        endless = {"push_norm_cap": 1.0, "transport": kind, "epochs": 10**15, "lease": 1e6}
        config = config_of(workers=2).model_copy(update=settings | endless)
        cluster = stack.enter_context(closing(Cluster(config, folder)))
        yield SparseTarget(cluster, kind) if config.updates == "sparse" else Target(cluster, kind)


class Target:
    """One server and its two workers, the first of which lies."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        self._server = cluster.servers[0]
        self._cluster = cluster
        self._liar, self._honest = seated(cluster)
        lane = self._server.lane
        address = cluster.addresses[0] if lane is None else f"localhost:{lane.port}"
        self._transport = client(kind, address)
        self._chief = RunServiceStub(open_channel(cluster.addresses[0], OPEN))
        self._cases = 0
        self._values = np.ones(LENGTH, np.float32)

    def case(self, dice: random.Random) -> str:
        """Sends one; returns the error's class, '' for none."""
        valid, send = dice.choice(self._ways())
        message = mutated(dice, valid)
        self._cases += 1
        try:
            send(message)
        except PacelineError as error:
            if type(error) is PacelineError or not str(error):
                raise AssertionError(f"{error!r} of {message!r}") from error
            return type(error).__name__
        finally:
            if self._cases % TOGETHER == 0:
                self.look()
        return ""

    def look(self) -> None:
        """The server lives, its status can be read, the other worker trains, and every number is one."""
        assert self._server.refusal is None, repr(self._server.refusal)
        status = call(self._chief.Status, run_pb.StatusRequest(), _SOON)
        assert status.examples < 2**63
        assert self._train() == pb.OUTCOME_FOLDED
        if self._server.driver.clocks.seat(self._liar.name) is None:  # it said that it stands still
            self._liar = Pusher(self._cluster).join().sit()
        arrays = [self._honest.model, *self._server.driver.model_slice.state().slots]
        assert all(np.isfinite(each).all() for each in arrays), "a number of the slice is none"

    def _train(self) -> int:
        """The other worker pushes once; returns the outcome."""
        return self._honest.push(1.0)[0].outcome

    def _ways(self) -> Sequence[tuple[Message, Callable[[Any], object]]]:
        """Valid messages, pushes three times as often as each other one, and what sends them."""
        liar, clock = self._liar, self._clock
        who = {"worker": liar.name, "incarnation": liar.incarnation}
        resume = pb.ResumeRequest(**who, plan_hash=self._plan_hash, protocol=PROTOCOL)
        pull = pb.PullRequest(reader="evaluator", plan_hash=self._plan_hash)
        ask = pb.AskRequest(push=self._earlier(), weights=True)
        seat = run_pb.SeatRequest(**who, clock=clock)
        beat = run_pb.HeartbeatRequest(**who, clock=clock, phase="WORKER_PHASE_COMPUTE", figures={"loss": 0.5})
        return (
            *self._pushes(),
            (resume, lambda message: self._transport.resume(message, _SOON)),
            (pull, lambda message: self._transport.pull(message, lambda head: Gathered(), _SOON)),
            (ask, lambda message: self._transport.ask(message, lambda head: Gathered(), _SOON)),
            (seat, lambda message: call(self._chief.Seat, message, _SOON)),
            (beat, lambda message: call(self._chief.Heartbeat, message, _SOON)),
        )

    def _pushes(self) -> Sequence[tuple[Message, Callable[[Any], object]]]:
        head = self._head()
        head.MergeFrom(
            pb.PushHead(
                elements=LENGTH,
                rates=[1.0],
                untouched=[1],
                options=[pb.GroupOption(name="weight_decay", values=[0.1])],
                position=pb.Position(batches=1, examples=1),
            )
        )
        return (
            (head, self._push_pull),
            (head, self._push_pull),
            (head, lambda message: self._transport.push(message, self._parts(message), _SOON)),
        )

    @property
    def _clock(self) -> int:
        return self._server.driver.clocks.entry(self._liar.name).clock

    @property
    def _plan_hash(self) -> str:
        plan = self._server.driver.plan
        assert plan is not None
        return plan.hash

    def _head(self) -> pb.PushHead:
        """That of the next push."""
        clocks = self._server.driver.clocks
        return pb.PushHead(
            worker=self._liar.name,
            incarnation=self._liar.incarnation,
            clock=self._clock + 1,
            examples=1,
            base_term=self._server.folder.term,
            base_version=clocks.version,
            view=clocks.view.number,
            plan_hash=self._plan_hash,
        )

    def _earlier(self) -> pb.EarlierPush:
        """The last one."""
        liar = self._liar
        facts = {"worker": liar.name, "incarnation": liar.incarnation, "plan_hash": self._plan_hash}
        return pb.EarlierPush(clock=self._clock, **facts)

    def _push_pull(self, head: pb.PushHead) -> object:
        return self._transport.push_pull(head, self._parts(head), lambda head: Gathered(), _SOON)

    def _parts(self, head: pb.PushHead) -> Parts:
        return encoded_parts(self._values, load_codec("none"), 1 << 20) if head.elements else ()


class SparseTarget(Target):
    """One that takes changes of a few elements."""

    def __init__(self, cluster: Cluster, kind: str) -> None:
        super().__init__(cluster, kind)
        honest = self._honest
        self._client = SparseClient(honest.around, make_plan(SHAPES, 1, cluster.config.plan))
        self._client.attach(honest.incarnation)
        self._client.pull(honest.model)

    def _train(self) -> int:
        honest, change = self._honest, Sparse(np.array([2, 7]), np.ones(2, np.float32), LENGTH)
        honest.clock += 1
        (answer,) = self._client.begin_sparse(honest.clock, honest.view, change, 1, self._client.bases)()
        self._client.pull(honest.model)
        return answer.head.outcome

    def _pushes(self) -> Sequence[tuple[Message, Callable[[Any], object]]]:
        head, places = self._head(), encode_places(np.array([1, 3]))
        push = pb.PushPullSparseRequest(head=head, places=places, values=self._values[:2].tobytes())
        base = {"base_term": head.base_term, "base_version": head.base_version}
        ask = pb.AskSparseRequest(push=self._earlier(), places=places, **base)
        return (
            *3 * ((push, lambda message: self._transport.push_sparse(message, _SOON)),),
            (ask, lambda message: self._transport.ask_sparse(message, _SOON)),
        )


def mutated(dice: random.Random, valid: Message) -> Message:
    """A copy in which one to three fields hold anything that their types allow."""
    message = type(valid)()
    message.CopyFrom(valid)
    for _ in range(dice.choice((0, 1, 1, 2, 3))):
        change(dice, message, dice.choice(message.DESCRIPTOR.fields))
    return message


def change(dice: random.Random, message: Message, field: FieldDescriptor) -> None:
    """Gives one field other contents."""
    inner = field.message_type
    if inner is not None and inner.GetOptions().map_entry:
        value = inner.fields_by_name["value"]
        getattr(message, field.name)[drawn(dice, inner.fields_by_name["key"])] = drawn(dice, value)
    elif field.is_repeated and inner is not None:
        added = getattr(message, field.name).add()
        change(dice, added, dice.choice(inner.fields))
    elif field.is_repeated:
        size = dice.choice((0, 1, 1, 2, 3, 300))
        message.ClearField(field.name)  # type: ignore[arg-type]
        getattr(message, field.name).extend(drawn(dice, field) for _ in range(size))
    elif inner is not None:
        change(dice, getattr(message, field.name), dice.choice(inner.fields))
    else:
        setattr(message, field.name, drawn(dice, field))


def drawn(dice: random.Random, field: FieldDescriptor) -> Any:
    """A value of the field's type, mostly one at its edges."""
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return dice.random() < 0.5
    if kind in (FieldDescriptor.CPPTYPE_DOUBLE, FieldDescriptor.CPPTYPE_FLOAT):
        return dice.choice(_NUMBERS) if dice.random() < 0.8 else dice.uniform(-10, 10)
    if kind == FieldDescriptor.CPPTYPE_STRING:
        text = dice.choice(_TEXTS)
        return text.encode() if field.type == FieldDescriptor.TYPE_BYTES else text
    bits = 32 if kind in _SHORT else 64
    found = dice.choice(_WHOLE) if dice.random() < 0.8 else dice.getrandbits(bits)
    if kind in (FieldDescriptor.CPPTYPE_UINT32, FieldDescriptor.CPPTYPE_UINT64):
        return found & ((1 << bits) - 1)
    return (found & ((1 << (bits - 1)) - 1)) * dice.choice((1, -1))
