"""A worker's connection to one server: repeats a push until it is answered, and receives weights into the flat model."""

import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import numpy as np

from paceline.core.codecs.codec import load_codec
from paceline.core.codecs.error_feedback import Owed
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush, Behind, DataError, Gap, ServersGone, Stopped, TryAgain, VersionGone
from paceline.core.linear.sparse import encode_places
from paceline.core.slice.lost_slices import lost
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import Phase
from paceline.core.values import AS_SET, Base, Manner, Places, Position, Sparse, Vector
from paceline.rpc.enums import phase_of
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import backoff, retried
from paceline.rpc.transport import Parts, Transport, encoded, encoded_parts, room_for, weights_codec
from paceline.rpc.watchdog import IDLE
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.tensor_pb2 import Tensor
from paceline.worker.exchange.broken_upload import BrokenUpload, draw_upload
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.exchange.residuals import open_owed
from paceline.worker.exchange.retained import Retained, RetainedPush, Sending
from paceline.worker.surroundings import Surroundings

_LONGEST_WAIT = 20.0
_QUIET = _LONGEST_WAIT + IDLE
"""Longest time in which nothing moves while a call goes on (seconds): the server may let its answer wait."""
LARGEST = 7 << 20
"""Largest sparse push (bytes); gRPC's limit is set to 8 MiB."""
T = TypeVar("T")
Choose = Callable[[pb.PullHead], Vector]
"""Picks the flat vector (of the whole model) that a reply's weights go to."""


class Abandoned(Exception):
    """The exchange is of no use any more: its worker goes back to an older clock."""


class Link:
    """One server's slice as a worker sees it. One exchange at a time, besides one that was abandoned; `catch_up` may be
    called by another thread."""

    def __init__(
        self,
        index: int,
        transport: Transport,
        around: Surroundings,
        plan: SlicePlan,
        on_retry: Callable[[str], None] = lambda code: None,
        retain: int = 0,
    ) -> None:
        """`on_retry`: receives the status of each failed exchange that is repeated. `retain`: bytes of pushes kept for a
        server that comes back without them."""
        config = around.config
        self.index = index
        self.ranges = plan.slices[index]
        self._length = plan.lengths[index]
        self._plan = plan
        self._runs = plan.runs(index)
        """Once for all: a step of `paceline.steps` is an epoch."""
        self._exact_from = plan.elements_before(config.optimizer.options.get("averaged", ()), index)
        self._transport = transport
        self._worker = around.name
        self.patience = around.patience
        """How long a call that nobody answers is repeated (seconds)."""
        self._stop = around.stop
        self._say = around.say
        self._on_retry = on_retry
        where = f" at {around.addresses[index]}" if index < len(around.addresses) else ""
        self._outage = around.outages.watch(f"server {index}{where}")
        self._outage.silence = lambda: transport.silence
        self._codecs = config.codec
        self._pull_codec = config.codec.pull_codec
        self._part_bytes = config.part_bytes
        self._epoch = -1
        self._push_codec: SliceCodec
        self.enter_epoch(0)
        self.owed: Owed | None = None
        """The parts of the slice's pushes not sent yet; None without error feedback."""
        if config.codec.has_feedback and self._length:
            facts = {"run": config.run or "", "plan": plan.hash, "codec": config.codec.model_dump_json()}
            name = f"{around.name}-server-{index}"
            self.owed, self._why = open_owed(around.residuals, name, facts, self._length, config.codec.momentum)
        self._tensors = [Tensor(name=name, shape=shape) for name, shape in plan.shapes]
        self.incarnation = 0
        self.answered = 0
        """Newest clock of this worker's way that this server has answered."""
        self.counted = 0
        """Newest clock that the slice has, as far as this link knows."""
        self.retained = Retained(retain)
        self._broken = BrokenUpload()
        self.replayed = 0
        """Pushes sent again to a server that had come back without them."""
        self.term = 0
        self._lower = 0
        """The term of the last answer, where that was lower; 0: it was not."""
        self.base = Base(0, 0)
        """Term and version of the weights that came last."""
        self.lr = 0.0
        """The schedule's rate in the last reply."""
        self.retries = 0
        self.pulled = 0.0
        """Time in which the last reply's weights came (seconds)."""
        self.sent = self.received = 0
        """Bytes of encoded values so far."""
        self._turn = 0
        """Grows where the present exchange is abandoned."""
        self._keeping = threading.Lock()
        """Held while `retained` is used, never during a call of the server."""
        self._catching_up = threading.Lock()
        """Held by the one thread of the present turn that sends pushes again."""

    def pull_exactly(self) -> None:
        """From now on weights come as the server has them, whatever the codec would round: they will be kept."""
        self._pull_codec = load_codec("none")

    def enter_epoch(self, epoch: int) -> None:
        """Sets the pass over the data (from 0) of the next pushes."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        codec = SliceCodec(self._codecs.push_codec_in(epoch), self._exact_from).fitted(self._runs)
        if epoch and codec == self._push_codec:
            return
        self._push_codec = codec
        self._room = room_for(self._push_codec, self._part_bytes, self._length)

    def leave_nothing_out(self) -> None:
        """The next push is the last one: it brings all that earlier ones have left out."""
        if self.owed is not None:
            self._push_codec = SliceCodec(load_codec("none"), self._exact_from)
            self._room = room_for(self._push_codec, self._part_bytes, self._length)

    def attach(self, incarnation: int) -> pb.ResumeReply:
        """Registers this worker with the slice; waits for a server that is not up yet."""
        self._turn += 1
        self._catching_up = threading.Lock()  # an abandoned replay may hold the old one for as long as its server waits
        if incarnation != self.incarnation:
            with self._keeping:
                self.retained.clear()
        self.incarnation = incarnation
        reply = retried(self.resume, self.patience, self._outage, self._stop, "Resume")
        if self.owed is not None:
            self._go_on_owing(self.owed, reply.clock)
        return reply

    def _go_on_owing(self, owed: Owed, clock: int) -> None:
        """Restores what is owed after the last push that the server has counted, as far as this or an earlier process knows
        it."""
        held = owed.clock
        is_known = owed.go_on_after(clock)
        if is_known and not self.answered and clock:
            self._say("took up what earlier pushes left out", server=self.index, clock=clock)
        if not is_known and clock:
            why = self._why or f"it is that of clock {held}"
            self._say("what earlier pushes left out is lost", server=self.index, clock=clock, why=why)

    def start_after(self, clock: int) -> None:
        """This worker goes on after this clock. Behind where the server has come back without it since it was asked."""
        self.answered = clock
        if self.counted < clock:
            raise Behind(f"Server {self.index} has come back with clock {self.counted} of {self._worker}, not {clock}.")

    def resume(self) -> pb.ResumeReply:
        """The slice's state."""
        request = pb.ResumeRequest(
            worker=self._worker,
            incarnation=self.incarnation,
            clock=self.answered,
            tensors=self._tensors,
            plan_hash=self._plan.hash,
            protocol=PROTOCOL,
            upload=self._broken.upload,
        )
        reply = self._transport.resume(request, timeout=10.0)
        if phase_of(reply) == Phase.EMPTY and self.answered:
            raise lost([self.index])
        self._note_term(reply.term, reply.version)
        self.counted = reply.clock
        self._broken.note(request.upload, reply.arrived)
        return reply

    def catch_up(self) -> None:
        """Sends a server that has come back what it lacks of the pushes that it had answered."""
        if self.incarnation and not self._catching_up.locked():
            self._bring_to(self.answered, self._turn)

    def is_durable(self) -> bool:
        """Asks the server whether it can't lose any push that it has answered any more."""
        reply = self.resume()
        if reply.clock < self.answered:
            self._bring_to(self.answered, self._turn)
            return False
        return reply.durable >= self.answered

    def initialise(self, model: Vector) -> None:
        """Sends the first weights of the slice until the server has them."""
        mine = self._gather(model)
        codec = load_codec("none")
        head = pb.PushHead(
            worker=self._worker,
            plan_hash=self._plan.hash,
            codec=codec.name,
            elements=self._length,
            digest=hashlib.sha256(mine.data).digest(),
            upload=draw_upload(mine.nbytes),
        )

        def send() -> pb.InitialiseReply:
            parts = self._broken.rest(head, list(encoded_parts(mine, codec, self._part_bytes)))
            try:
                return self._transport.initialise(head, parts, _QUIET)
            except TryAgain:
                with suppress(TryAgain):
                    self.resume()  # the server may not know the plan yet
                raise

        retried(send, self.patience, self._outage, self._stop, "Initialise")

    def pull(self, version: int | None, target: Vector, is_patient: bool = True, mean: bool = False) -> int:
        """Weights of `version` (None, or where it is not kept any more: the newest) into the flat model; returns which.
        An impatient caller also gets the newest if the version does not come within 20 s. `mean`: the mean of the versions
        up to that one instead, if the run has one."""
        request = pb.PullRequest(
            reader=self._worker, plan_hash=self._plan.hash, codec=self._pull_codec.name, version=version, mean=mean
        )
        turn, began = self._turn, time.monotonic()
        for pause in backoff():
            opened = _Opened(self, turn, lambda head: target)
            try:
                head = self._transport.pull(request, opened, _QUIET)
                taken = self._took(head, opened) if head.outcome != pb.OUTCOME_WAIT else None
                self._outage.works()
                if taken is not None:
                    return taken
                began = time.monotonic()
                if not is_patient:
                    request.ClearField("version")
            except VersionGone:
                request.ClearField("version")
            except TryAgain as error:
                self._failed("a pull", error, began)
            self._pause(pause)
        raise AssertionError("backoff never ends")

    def push_pull(
        self,
        clock: int,
        view: int,
        gradient: Vector | None,
        examples: int,
        base: Base,
        choose: Choose | None,
        manner: Manner = AS_SET,
        round: int = 0,
        position: Position | None = None,
    ) -> pb.PullHead:
        """Sends this clock's update (None: an empty one) until it is answered, byte for byte the same, and receives the
        weights where `choose` says where to. `base`: the weights that the update was computed on;
        `manner`: how the server is to step with it; `round`, `position`: as in `Push`.
        Raises Fenced, BadPush and the like; ServersGone where it gives no answer; Behind where the server has come back
        without earlier pushes, and they are not retained."""
        owed, turn = self.owed, self._turn
        is_known = owed is not None and clock <= owed.clock
        head = self._head(clock, view, examples, base)
        head.elements = 0 if gradient is None else self._length
        if is_known:
            gradient = None  # an earlier process has sent it, and the server has counted it
        head.rates.extend(manner.rates)
        head.untouched.extend(manner.untouched)
        head.options.extend(pb.GroupOption(**option._asdict()) for option in manner.options)
        if round:
            head.note.round = round
        if position is not None:
            head.position.CopyFrom(pb.Position(batches=position.batches, examples=position.examples))
        sending = self._encoded(clock, gradient)
        head.upload = draw_upload(sending.size)
        is_new = clock > self.counted
        self.sent += sending.size

        def send() -> pb.PullHead:
            if is_known:
                raise Behind(f"Server {self.index} has come back without clock {clock} of {self._worker}.")
            return self._send(head, self._broken.rest(head, sending), choose, turn)

        answer = self._answered(clock, send, lambda: self._ask(head, choose, turn), lambda found: found, turn)
        with self._keeping:
            is_dropped = answer.outcome == pb.OUTCOME_DROPPED
            self.retained.end(head, sending, is_new and answer.durable < clock, is_dropped)
        if is_dropped and owed is not None and gradient is not None:
            owed.take_back(self._gather(gradient))
        return answer

    def push_sparse(
        self, clock: int, view: int, update: Sparse, examples: int, base: Base, wanted: Places | None
    ) -> pb.PushPullSparseReply:
        """The same for the change of a few elements of this slice; the reply brings the weights that are wanted, or those
        that differ from `base` (None). DataError where the update is too large for one message."""
        turn = self._turn
        message = pb.PushPullSparseRequest(
            head=self._head(clock, view, examples, base),
            places=encode_places(update.places),
            values=encoded(update.values, self._push_codec.codec),
            wanted=None if wanted is None else encode_places(wanted),
        )
        if message.ByteSize() > LARGEST:
            raise DataError(
                f"A push has {len(update.places):,} weights for server {self.index}, {message.ByteSize():,} bytes; at most "
                f"{LARGEST:,} go into one message. Set svm.batches or batch_size lower, or use more servers."
            )

        def noted(found: pb.PushPullSparseReply) -> pb.PushPullSparseReply:
            if found.head.outcome != pb.OUTCOME_WAIT:
                self._check_term(found.head)
                self._check_turn(turn)
                self._took(found.head)
            return found

        def send() -> pb.PushPullSparseReply:
            return noted(self._transport.push_sparse(message, _QUIET))

        def ask() -> pb.PushPullSparseReply:
            request = pb.AskSparseRequest(
                push=_earlier(message.head),
                base_term=base.term,
                base_version=base.version,
                places=message.places,
                wanted=message.wanted if message.HasField("wanted") else None,
            )
            return noted(self._transport.ask_sparse(request, _QUIET))

        is_new = clock > self.counted
        self.sent += message.ByteSize()
        answer = self._answered(clock, send, ask, lambda found: found.head, turn)
        self.received += answer.ByteSize()
        if is_new and answer.head.durable < clock:
            with self._keeping:
                self.retained.add_sparse(message, answer.head.outcome == pb.OUTCOME_DROPPED)
        return answer

    def _head(self, clock: int, view: int, examples: int, base: Base) -> pb.PushHead:
        return pb.PushHead(
            worker=self._worker,
            incarnation=self.incarnation,
            clock=clock,
            examples=examples,
            view=view,
            base_term=base.term,
            base_version=base.version,
            plan_hash=self._plan.hash,
            codec=self._push_codec.codec.name,
            pull_codec=self._pull_codec.name,
        )

    def _answered(
        self,
        clock: int,
        send: Callable[[], T],
        ask: Callable[[], T],
        head_of: Callable[[T], pb.PullHead],
        turn: int,
    ) -> T:
        """Sends until the push is answered, whatever the server has to be sent before; asks where the server already has it."""
        pauses, began = backoff(), time.monotonic()
        is_there = clock <= self.counted
        while True:
            try:
                answer = ask() if is_there else send()
                self._outage.works()
                if head_of(answer).outcome != pb.OUTCOME_WAIT:
                    self._check_turn(turn)
                    self.answered = clock
                    self.counted = max(self.counted, clock)
                    with self._keeping:
                        self.retained.forget(head_of(answer).durable)
                    return answer
                is_there = True
                began = time.monotonic()
            except (Gap, TryAgain) as error:
                if isinstance(error, TryAgain):
                    self._failed("a push", error, began)
                self._pause(next(pauses))
                is_there = self._bring_to(clock - 1, turn) >= clock

    def _send(self, head: pb.PushHead, parts: Parts, choose: Choose | None, turn: int) -> pb.PullHead:
        """Makes one attempt."""
        if choose is None:
            return self._noted(self._transport.push(head, parts, _QUIET), turn)
        opened = _Opened(self, turn, choose)
        return self._noted(self._transport.push_pull(head, parts, opened, _QUIET), turn, opened)

    def _ask(self, head: pb.PushHead, choose: Choose | None, turn: int) -> pb.PullHead:
        """Asks once for the answer to the push with that head."""
        if choose is None:
            return self._noted(self._ask_plainly(head), turn)
        opened = _Opened(self, turn, choose)
        request = pb.AskRequest(push=_earlier(head), weights=True)
        return self._noted(self._transport.ask(request, opened, _QUIET), turn, opened)

    def _ask_plainly(self, head: pb.PushHead) -> pb.PullHead:
        """The same without weights."""
        nowhere = SliceSink(np.empty(0, np.float32), (), load_codec("none"))
        return self._transport.ask(pb.AskRequest(push=_earlier(head)), lambda answer: nowhere, _QUIET)

    def _noted(self, answer: pb.PullHead, turn: int, opened: "_Opened | None" = None) -> pb.PullHead:
        """The answer to a push, once this link has its facts. `opened`: where its weights went; None: it has none."""
        if answer.outcome == pb.OUTCOME_WAIT:
            return answer
        if opened is not None:
            self._took(answer, opened)
            return answer
        self._check_term(answer)
        self._check_turn(turn)
        self.lr = answer.lr
        self._note_term(answer.term, answer.version)
        return answer

    def _bring_to(self, clock: int, turn: int) -> int:
        """Sends again what the slice lacks up to this clock, and up to where the worker has gone on since; returns the slice's
        own. Behind where that is not retained."""
        with self._catching_up:
            pauses, began = backoff(), time.monotonic()
            while True:
                self._check_turn(turn)
                try:
                    found = int(self.resume().clock)
                    clock = max(clock, self.answered)  # see `start_after`, which sets this before it looks at `counted`
                    with self._keeping:
                        missing = self.retained.since(found, clock)
                    if missing is None:
                        raise Behind(
                            f"Server {self.index} has come back with clock {found} of {self._worker}, which has its answers up "
                            f"to clock {clock}."
                        )
                    if not missing:
                        return found
                    self._say("sends pushes again", server=self.index, first=found + 1, last=clock)
                    for push in missing:
                        self._send_again(push, turn)
                        self.replayed += 1
                        began = time.monotonic()
                except Gap:
                    pass
                except TryAgain as error:
                    self._failed("Resume", error, began)
                self._pause(next(pauses))

    def _send_again(self, push: RetainedPush, turn: int) -> None:
        """Sends a retained push until it is answered; wants no weights."""
        self._check_turn(turn)
        if isinstance(push.message, pb.PushPullSparseRequest):
            answer = self._transport.push_sparse(push.message, _QUIET).head
        else:
            head = pb.PushHead()
            head.CopyFrom(push.message)  # a replay that was abandoned may still send the other
            answer = self._transport.push(head, self._broken.rest(head, push.parts), _QUIET)

        while answer.outcome == pb.OUTCOME_WAIT:
            self._check_turn(turn)
            answer = self._ask_plainly(push.head)

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped("The process got a signal to stop.")

    def _failed(self, what: str, error: TryAgain, began: float) -> None:
        """Counts a temporary failure of the call `what` that `began` then, or was answered last; ServersGone if no time is left
        for another attempt, and no more of a push has come meanwhile."""
        self.retries += 1
        self._outage.failed(what, str(error))
        self._on_retry(error.status)
        if time.monotonic() - max(began, self._broken.grew) > self.patience:
            raise ServersGone(
                f"Server {self.index} has given no answer for {self.patience:g} s (deadline): {error}"
            ) from error

    def _took(self, head: pb.PullHead, opened: "_Opened | None" = None) -> int:
        """Notes which weights have come; TryAgain where the stream ended before all had."""
        if opened is not None and opened.filled != head.elements:
            raise TryAgain(f"Server {self.index} sent {opened.filled:,} of {head.elements:,} weights.")
        if opened is not None:
            self.pulled = time.monotonic() - opened.began
            self.received += self._coding(head).most_bytes(head.elements) if head.elements else 0
        self.base = Base(head.term, head.version)
        self._note_term(head.term, head.version)
        self.lr = head.lr
        return head.version

    def _note_term(self, term: int, version: int) -> None:
        if self.term and term != self.term:
            self._say("server is back under a new term", server=self.index, term=term, version=version)
        self.term = term

    def _check_term(self, head: pb.PullHead) -> None:
        """TryAgain where the answer is of a lower term than the server has reached, since it may be old. The next one of that
        term is not, as its call began later: the server's folder has lost a start, and who only reads goes on with it."""
        if head.term >= self.term:
            self._lower = 0
        elif head.term == self._lower:
            self._note_term(head.term, head.version)
        else:
            self._lower = head.term
            raise TryAgain(
                f"Server {self.index} answered in term {head.term}, but it has reached term {self.term}: the answer is old."
            )

    def _check_turn(self, turn: int) -> None:
        if turn != self._turn:
            raise Abandoned

    def sink(self, head: pb.PullHead, choose: Choose, turn: int) -> SliceSink:
        """Where the weights of an exchange go."""
        self._check_turn(turn)
        if head.elements not in (0, self._length):
            raise BadPush(f"Server {self.index} announces {head.elements:,} weights, expected {self._length:,}.")
        if head.outcome != pb.OUTCOME_WAIT:
            self._check_term(head)
        return SliceSink(choose(head), self.ranges, self._coding(head))

    def _coding(self, head: pb.PullHead) -> SliceCodec:
        """How the weights behind this head travel."""
        return SliceCodec(weights_codec(head.codec), self._exact_from)

    def _gather(self, model: Vector, out: Vector | None = None) -> Vector:
        """The slice's elements as one array, in `out`; without it a view where they lie together."""
        views = [model[part.start : part.stop] for part in self.ranges]
        if len(views) == 1 and out is None:
            return views[0]
        return np.concatenate(views, out=out) if views else np.empty(0, np.float32)

    def _encoded(self, clock: int, gradient: Vector | None) -> Sending:
        """The slice's parts of this clock's push, encoded once; without a codec they may be the gradient's own memory."""
        owed, codec = self.owed, self._push_codec
        if gradient is None:
            if owed is not None and clock > owed.clock:
                owed.skip(clock)
            return self.retained.sending([], None)
        is_raw = codec.lossless and owed is None
        room = None if is_raw and len(self.ranges) < 2 else self.retained.room(self._room)
        values = self._gather(gradient, room.view(np.float32) if is_raw and room is not None else None)
        feedback = None if owed is None else owed.feedback(codec.codec)
        parts = list(encoded_parts(values, codec, self._part_bytes, room, feedback))
        if owed is not None:
            owed.sent(clock)
        return self.retained.sending(parts, room)


def _earlier(head: pb.PushHead) -> pb.EarlierPush:
    """Names the push that began with this head."""
    return pb.EarlierPush(
        worker=head.worker,
        incarnation=head.incarnation,
        clock=head.clock,
        plan_hash=head.plan_hash,
        pull_codec=head.pull_codec,
    )


class _Opened:
    """The way of one exchange's weights into the model."""

    def __init__(self, link: Link, turn: int, choose: Choose) -> None:
        self._link = link
        self._turn = turn
        self._choose = choose
        self._sink: SliceSink | None = None
        self.began = time.monotonic()
        """When the head of the reply came."""

    def __call__(self, head: pb.PullHead) -> SliceSink:
        self.began = time.monotonic()
        self._sink = self._link.sink(head, self._choose, self._turn)
        return self._sink

    @property
    def filled(self) -> int:
        """Elements that have come."""
        return 0 if self._sink is None else self._sink.filled
