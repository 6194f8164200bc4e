"""A worker among the others of a run without servers: carries its policy's messages there and back."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from random import Random

import numpy as np

from paceline.core.codecs.codec import Codec, load_codec
from paceline.core.errors import BadPush, DataError, NotYet, PacelineError, TryAgain, VersionGone
from paceline.core.peers.peer_policy import Group, Message, PeerPolicy, Welcome
from paceline.core.peers.topology import SEATS, Topology
from paceline.core.policies.policy import Own
from paceline.core.slice.plan import Range, SlicePlan
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials
from paceline.rpc.enums import number_of
from paceline.rpc.outages import Outages
from paceline.rpc.retries import backoff
from paceline.rpc.roles import speak_for
from paceline.rpc.transport import IsThere, Outgoing, encoded_parts, weights_codec
from paceline.rpc.watchdog import IDLE
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.peer_service_pb2 import WelcomeRequest
from paceline.v1.run_service_pb2 import Peer
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.peers.peer_messages import Delivery, Line, PeerMetrics, kind_of, member_id, message_of
from paceline.worker.peers.peer_server import PeerLine

_PLAIN = load_codec("none")
_WAITING = 8
"""Messages to one worker that may wait to be sent; a thread with one more waits, too."""
_PATIENCE = 10.0
"""Longest wait for the answer to an ask, since a message went to its worker or came from it (seconds)."""
_WHOLE = ("ask", "answer", "model", "newest", "mean")
"""Kinds of messages whose values are a whole model, or a gradient."""
_TRIES = 5
"""Times that all others must say that they have no model before the run is given up."""
_LOOK = 0.25
"""Time between two looks whether this worker is still wanted (seconds)."""


@dataclass(slots=True)
class _First:
    """The weights that all founders begin with."""

    weights: Vector
    digest: bytes
    """Their SHA-256."""
    wanted: set[str]
    """Founders that have yet to ask for them."""


def _named(members: Iterable[int]) -> list[str]:
    return [f"worker-{member % SEATS}" for member in sorted(members)]


class Peers:
    """One worker's end of all lines to the others, and its policy, which only one thread at a time uses, for no longer than
    it takes to copy or add. Thread-safe."""

    def __init__(
        self,
        name: str,
        credentials: Credentials,
        transport: str,
        plan: SlicePlan,
        codec: Codec,
        part_bytes: int,
        say: Callable[..., None],
        metrics: PeerMetrics | None = None,
        outages: Outages | None = None,
    ) -> None:
        """`codec`: of what is sent but for sparse updates."""
        self._name = name
        self._credentials = credentials
        self._transport = transport
        self._say = say
        self._outages = outages or Outages(say)
        self._plan = plan
        self._codec = codec
        self._part_bytes = part_bytes
        self._changed = threading.Condition()
        self._policy: PeerPolicy | None = None
        self._is_joining = False
        self._failure: Exception | None = None
        """Why this worker can't go on with the others: a failure that another try would not fix."""
        self._left: PeerPolicy | None = None
        """What this process took part with last, which nobody changes any more."""
        self._view = 0
        self._addresses = dict[int, str]()
        """Where each member is, by its id."""
        self._lines: dict[int, Line] = {}
        self._seen: dict[int, int] = {}
        """Number of each member's last message that was taken."""
        self._asks: list[Message] = []
        self._busy: Counter[int] = Counter()
        """Messages that are just going to each member, or coming from it; each ends itself where nothing of it moves."""
        self._heard: dict[int, float] = {}
        """When the last one of each member ended well (time.monotonic seconds)."""
        self._id = 0
        self._usual = 1
        self._is_founder = False
        self._first: _First | None = None
        """The first founder's, until all have them."""
        self.own: Own
        """The model that the policy changes, and what it steps it with."""
        self._metrics = metrics or PeerMetrics()
        self._sent = self._received = 0
        """Bytes of values that other workers have taken, and that were taken from them."""
        self._metrics.waiting.set_function(lambda: sum(line.waiting for line in list(self._lines.values())))

    @property
    def traffic(self) -> tuple[int, int]:
        """Bytes of values sent and received so far."""
        return self._sent, self._received

    # the members
    def heard(self, view: int, peers: Sequence[Peer]) -> None:
        """The chief names the members of its newest view."""
        with self._changed:
            if not peers or view <= self._view:
                return
            before = self._addresses
            self._view = view
            self._addresses = {member_id(peer.worker, peer.incarnation): peer.address for peer in peers}
            self._metrics.members.set(len(peers))
            for member in [member for member in self._lines if member not in self._addresses]:
                self._lines.pop(member).close()
                self._heard.pop(member, None)
            left, come = before.keys() - self._addresses.keys(), self._addresses.keys() - before.keys()
            self._served(_named(left))
            if before and (left or come):
                now = _named(self._addresses)
                self._say("the members are others", view=view, left=_named(left), came=_named(come), members=now)
            if self._policy is not None and self._id in self._addresses:
                try:
                    self._send(self._policy.regroup(self._group))
                except PacelineError as error:
                    self._failure = error
            self._changed.notify_all()

    def is_first(self, incarnation: int, founders: Sequence[Peer]) -> bool:
        """Whether this worker has the lowest number of all founders, with whose weights they begin."""
        mine = member_id(self._name, incarnation)
        return mine == min((member_id(peer.worker, peer.incarnation) for peer in founders), default=mine)

    def _served(self, workers: Iterable[str]) -> None:
        """With the lock held: these need the first weights no more."""
        if self._first is not None:
            self._first.wanted.difference_update(workers)
            self._first = self._first if self._first.wanted else None

    @property
    def _group(self) -> Group:
        return Group(self._view, tuple(sorted(self._addresses)))

    def begin(
        self,
        incarnation: int,
        policy: PeerPolicy,
        topology: Topology,
        own: Own,
        seed: int,
        begins: bool,
        check: Callable[[], None],
        usual: int = 1,
        is_founder: bool = False,
    ) -> None:
        """Takes part once `heard` has named the members: where it `begins`, with its own weights, otherwise with what a member
        gives, or a founder with its own where nobody has a model. `check` raises if this is not wanted any more; `usual`:
        examples of a mini-batch. Raises DataError if no member is left that could give a later worker the model."""
        self._id = member_id(self._name, incarnation)
        self._usual = usual
        self._is_founder = is_founder
        self._is_joining = not begins
        is_alone = self._addresses.keys() <= {self._id}
        digest = sha256(own.local.data).digest() if is_founder and not is_alone else b""
        welcome = None if begins else self._welcomed(check, digest)
        with self._changed:
            self._is_joining = False
            if digest and begins and (others := self._addresses.keys() - {self._id}):
                self._first = _First(own.local.copy(), digest, set(_named(others)))
            self._failure = None
            self._seen = {}
            policy.begin(self._id, self._group, topology, own, Random(seed), self._codec)
            self._policy = policy
            self._left = None
            self.own = own
            if welcome is not None and is_founder and not welcome.round:
                np.copyto(own.local, welcome.model)
            elif welcome is not None:
                self._send(policy.join(welcome))
            self._changed.notify_all()

    def end(self) -> None:
        """Takes no more part: what others send is put off."""
        with self._changed:
            self._first = None
            self._left = self._policy or self._left
            self._policy = None
            for line in self._lines.values():
                line.close()
            self._lines = {}

    # a step, by the training loop
    def start_step(self, copy_to: Vector) -> None:
        """The next step begins; `copy_to` becomes the model to take the gradient at."""
        with self._changed:
            policy = self._present()
            messages = policy.start()
            self._asks = [message for message in messages if message.kind == "ask"]
            np.copyto(copy_to, self.own.local)
            self._send(messages)

    def end_step(self, gradient: Vector | None, check: Callable[[], None], examples: int = 1) -> float:
        """Takes the step's gradient, of `examples`, and returns when the policy lets the worker go on: how long it waited
        for others (seconds)."""
        with self._changed:
            self._send(self._present().step(gradient, examples / self._usual))
            asked = time.monotonic()
            while self._present().waits_for() or any(line.waiting > _WAITING for line in self._lines.values()):
                if not self._changed.wait(_LOOK):
                    check()
                if self._failure is not None:
                    raise self._failure
                for ask in [ask for ask in self._asks if self._is_silent(ask.to, asked)]:
                    self._say("a worker does not answer; the step goes on without it", worker=_named([ask.to])[0])
                    self._present().gave_up(ask)
                    self._asks.remove(ask)
        return time.monotonic() - asked

    def _is_silent(self, member: int, since: float) -> bool:
        """Whether nothing has gone to that member or come from it for too long."""
        return not self._busy[member] and time.monotonic() - max(since, self._heard.get(member, 0.0)) > _PATIENCE

    @contextmanager
    def _moving(self, member: int) -> Iterator[None]:
        """Around a message to that member or from it."""
        with self._changed:
            self._busy[member] += 1
        try:
            yield
            with self._changed:
                self._heard[member] = time.monotonic()
        finally:
            with self._changed:
                self._busy[member] -= 1

    def take_rate(self, lr: float) -> None:
        """The chief's, for the next step."""
        with self._changed:
            self._present().take_rate(lr)

    @property
    def round(self) -> int:
        """The step that has ended, from 1: among those that joined together all have the same one."""
        with self._changed:
            return self._present().round

    @contextmanager
    def model(self) -> Iterator[Vector]:
        """The model, which nobody changes meanwhile."""
        with self._changed:
            yield self.own.local

    def _present(self) -> PeerPolicy:
        if self._policy is None:
            raise NotYet(f"{self._name} is not training at the moment.")
        return self._policy

    def _send(self, messages: Iterable[Message]) -> None:
        """With the lock held."""
        for message in messages:
            line = self._lines.get(message.to)
            if line is None and (address := self._addresses.get(message.to)):
                line = self._lines[message.to] = Line(self._line_to(address), self._deliver, self._freed, self._fail)
            if line is not None:
                line.put(message)

    def _freed(self) -> None:
        with self._changed:
            self._wake()

    def _wake(self) -> None:
        """With the lock held: the step looks again whether it may go on, unless it waits for more messages anyway."""
        if self._policy is None or not self._policy.waits_for():
            self._changed.notify_all()

    # to others, in a line's thread
    def _deliver(self, line: Line, message: Message, number: int) -> None:
        """Sends until it is taken, or the line is closed."""
        values, places, codec = message.values, message.places, self._codec
        if places is not None:
            codec, values = _PLAIN, np.concatenate([values, places.astype(np.uint32).view(np.float32)])
        note = pb.PeerNote(
            kind=number_of(pb.PeerMessageKind.DESCRIPTOR, message.kind),
            view=message.view,
            round=message.round,
            hop=message.hop,
            weight=message.weight,
            sparse=places is not None,
            to=message.to // SEATS,
        )
        head = pb.PushHead(
            worker=self._name,
            incarnation=self._id // SEATS,
            clock=number,
            plan_hash=self._plan.hash,
            codec=codec.name,
            elements=len(values),
            note=note,
        )
        room = line.scratch(codec, self._part_bytes, len(values))
        parts = list(encoded_parts(values, codec, self._part_bytes, room))
        outage = self._outages.watch(_named([message.to])[0])
        outage.silence = lambda: line.peer.silence
        for pause in backoff():
            try:
                with self._moving(message.to):
                    line.peer.deliver(head, parts, IDLE)
                outage.works()
                size = codec.most_bytes(len(values))
                self._metrics.sent.inc(size)
                with self._changed:
                    self._sent += size
                return
            except TryAgain as error:
                self._metrics.retries.inc()
                outage.failed("a message", str(error))
                if line.closed.wait(pause):
                    return

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def _line_to(self, address: str) -> PeerLine:
        return PeerLine(address, self._credentials, self._transport)

    def _welcomed(self, check: Callable[[], None], digest: bytes) -> Welcome | None:
        """What the first other member gives that can; None: a founder's own first weights, of this `digest`, are right. Where
        none has a model, time and again, this process goes on with its own, if it had one, or with its first weights if it is
        a founder: the member with the lowest number first. DataError where it had none."""
        in_vain = 0
        for pause in backoff():
            with self._changed:
                here = sorted(self._addresses.items())
                view, others = self._view, [address for member, address in here if member != self._id]
            without = 0
            for address in others:
                outage = self._outages.watch(f"the worker at {address}")
                try:
                    welcome = self._welcome_of(address, view, digest)
                    outage.works()
                    return welcome
                except VersionGone:
                    without += 1
                except TryAgain as error:
                    outage.failed("the call for its model", str(error))
            in_vain = in_vain + 1 if without == len(others) else 0
            with self._changed:
                place = sorted(self._addresses).index(self._id) if self._id in self._addresses else 0
            if self._left is None and digest and in_vain >= _TRIES * (1 + place):
                return None
            if self._left is not None and in_vain >= _TRIES * (1 + place):
                own = replace(self._left.welcome(), lr=None)
                self._say("no other worker has a model; this one goes on with its own", round=own.round)
                return own
            if self._left is None and in_vain >= _TRIES * (1 + len(others)):
                raise DataError(
                    "All workers that had the run's model are gone, and the run has no servers that keep it. "
                    "Start the run over (--fresh). The best model so far is still in models/best.safetensors."
                )
            check()
            time.sleep(pause)
        raise AssertionError("backoff never ends")

    def _welcome_of(self, address: str, view: int, digest: bytes) -> Welcome | None:
        taken = list[Vector]()
        request = WelcomeRequest(reader=self._name, plan_hash=self._plan.hash, view=view, first=digest)

        def opened(head: pb.PullHead) -> SliceSink:
            if head.elements > 8 * self._plan.total:
                raise BadPush(f"{address} announces {head.elements:,} values, for a model of {self._plan.total:,}.")
            taken.append(np.empty(head.elements, np.float32))
            return SliceSink(taken[0], (Range(0, head.elements),), _PLAIN)

        with self._line_to(address) as peer:
            found = peer.welcome(request, opened, IDLE).welcome
        if digest and not len(taken[0]):
            return None
        arrays = [taken[0][start : start + self._plan.total] for start in range(0, len(taken[0]), self._plan.total)]
        model, slots, rest = arrays[0], arrays[1 : 1 + found.slots], arrays[1 + found.slots :]
        mean = None
        if found.HasField("mean"):
            mean = Message("mean", 0, self._id, found.mean.view, found.mean.round, rest[0], found.mean.weight)
        return Welcome(found.round, model, slots, found.steps, mean, found.lr if found.HasField("lr") else None)

    # from others, in a server's thread
    @contextmanager
    def taking(self, head: pb.PushHead, is_there: IsThere) -> Iterator[Delivery]:
        """Deliver: a message of another worker's."""
        speak_for(head.worker)
        self._plan.check(head.plan_hash, head.worker)
        note, kind = head.note, kind_of(head.note)
        with self._changed:
            policy = self._present()
            is_known = member_id(head.worker, head.incarnation) in self._addresses
            room = policy.room(kind, note.view, note.round, note.hop) if kind in policy.kinds else None
        if kind not in policy.kinds:
            known = ", ".join(sorted(policy.kinds))
            raise BadPush(f"{head.worker} sent a message of kind {kind!r}; expected {known}. Use one config for all.")
        total = self._plan.total
        least = total if kind in _WHOLE else 0
        most = {"update": 2 * total, "note": 0}.get(kind, total)
        if not least <= head.elements <= most or note.sparse != (kind == "update"):
            raise BadPush(f"{head.worker} announces {head.elements:,} values ({kind}), for a model of {total:,}.")
        if not is_known:
            raise NotYet(f"{self._name} does not know {head.worker} yet, or no longer does.")
        if room is None or len(room) != head.elements:
            room = np.empty(head.elements, np.float32)
        with self._moving(member_id(head.worker, head.incarnation)):
            yield Delivery(head, room, self._take)

    def _take(self, head: pb.PushHead, values: Vector) -> None:
        message = message_of(head, self._id, values, self._plan.total)
        size = weights_codec(head.codec).most_bytes(head.elements)
        self._metrics.received.inc(size)
        with self._changed:
            self._received += size
            policy = self._present()
            if head.note.to != self._id // SEATS or head.clock <= self._seen.get(message.sender, 0):
                return
            self._seen[message.sender] = head.clock
            self._send(policy.receive(message))
            self._wake()

    @contextmanager
    def welcoming(self, request: WelcomeRequest, is_there: IsThere) -> Iterator[Outgoing]:
        """Welcome: what a joiner begins with."""
        speak_for(request.reader)
        self._plan.check(request.plan_hash, request.reader)
        with self._changed:
            if self._is_joining and self._is_founder and not request.first:
                raise NotYet(f"{self._name} has yet to begin.")
            if self._is_joining:
                raise VersionGone(f"{self._name} does not have a model yet.")
            policy = self._present()
            if self._view < request.view:
                raise NotYet(f"{self._name} does not know view {request.view} yet.")
            first = self._first if request.first else None
        if first is not None:
            values = first.weights[: 0 if request.first == first.digest else None]
            head = pb.PullHead(outcome=pb.OUTCOME_FOLDED, codec="none", elements=len(values), welcome=pb.Welcome())
            yield Outgoing(head, encoded_parts(values, _PLAIN, self._part_bytes))
            with self._changed:
                self._served([request.reader])
            return
        with self._changed:
            policy = self._present()
            if not policy.knows_rate:
                raise NotYet(f"{self._name} waits for the rate of the next step.")
            given = policy.welcome()
        arrays = [given.model, *given.slots, *([] if given.mean is None else [given.mean.values])]
        welcome = pb.Welcome(round=given.round, steps=given.steps, slots=len(given.slots), lr=given.lr)
        if given.mean is not None:
            mean = pb.PeerNote(view=given.mean.view, round=given.mean.round, weight=given.mean.weight)
            welcome.mean.CopyFrom(mean)
        values = np.concatenate(arrays)
        head = pb.PullHead(outcome=pb.OUTCOME_FOLDED, codec="none", elements=len(values), welcome=welcome)
        yield Outgoing(head, encoded_parts(values, _PLAIN, self._part_bytes))
