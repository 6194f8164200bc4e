"""A worker's connection to one server: repeats a push until it is answered, and receives weights into the flat model."""

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import numpy as np

from paceline.core.coding.codec import Codec, load_codec
from paceline.core.coding.error_feedback import Owed
from paceline.core.errors import BadPush, DataError, Gap, ServersGone, Stopped, TryAgain, VersionGone
from paceline.core.linear.sparse import encode_places
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import AS_SET, Base, Manner, Places, Sparse, Vector
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import backoff, retried
from paceline.rpc.transport import Parts, Transport, encoded, encoded_parts, room_for, weights_codec
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.tensor_pb2 import Tensor
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.exchange.residuals import open_owed
from paceline.worker.surroundings import Surroundings

_LONGEST_WAIT = 20.0
_SLOWEST = 4e6
"""A transfer slower than this is given up and repeated (bytes/s)."""
LARGEST = 7 << 20
"""Largest sparse push (bytes); gRPC's limit is set to 8 MiB."""
T = TypeVar("T")
Choose = Callable[[pb.PullHead], Vector]
"""Picks the flat vector (of the whole model) that a reply's weights go to."""


class Link:
    """One server's slice as a worker sees it. One exchange at a time; `resume` may be called by another thread."""

    def __init__(
        self,
        index: int,
        transport: Transport,
        around: Surroundings,
        plan: SlicePlan,
        on_retry: Callable[[str], None] = lambda code: None,
    ) -> None:
        """`on_retry`: receives the status of each failed exchange that is repeated."""
        config = around.config
        self.index = index
        self.ranges = plan.slices[index]
        self._length = plan.lengths[index]
        self._plan = plan
        self._transport = transport
        self._worker = around.name
        self._deadline = around.deadline
        self._stop = around.stop
        self._say = around.say
        self._on_retry = on_retry
        self._codecs = config.codec
        self._pull_codec = config.codec.pull_codec
        self._part_bytes = config.part_bytes
        self._timeout = _LONGEST_WAIT + 10 + 8 * self._length / _SLOWEST
        self._epoch = -1
        self._push_codec: Codec
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
        """Newest clock that this server has answered."""
        self.term = 0
        self.base = Base(0, 0)
        """Term and version of the weights that came last."""
        self.lr = 0.0
        """The schedule's rate in the last reply."""
        self.retries = 0
        self._open: SliceSink | None = None
        """The target of the present exchange's weights."""

    def enter_epoch(self, epoch: int) -> None:
        """Sets the pass over the data (from 0) of the next pushes."""
        if epoch == self._epoch:
            return
        self._epoch = epoch
        codec = self._codecs.push_codec_in(epoch).fitted(self._plan.runs(self.index))
        if epoch and codec == self._push_codec:
            return
        self._push_codec = codec
        room = room_for(self._push_codec, self._part_bytes, self._length)
        self._scratch = None if self._push_codec.lossless else np.empty(room, np.uint8)

    def attach(self, incarnation: int) -> pb.ResumeReply:
        """Registers this worker with the slice; waits for a server that is not up yet."""
        self.incarnation = incarnation
        reply = retried(self.resume, self._deadline, f"server {self.index}", self._stop, self._say)
        if self.owed is not None:
            self._go_on_owing(self.owed, reply.clock)
        return reply

    def _go_on_owing(self, owed: Owed, clock: int) -> None:
        """What is owed after the last push that the server has counted, whatever this or an earlier process knows of it."""
        held = owed.clock
        is_known = owed.go_on_after(clock)
        if is_known and not self.answered and clock:
            self._say("took up what earlier pushes left out", server=self.index, clock=clock)
        if not is_known and clock:
            why = self._why or f"it is that of clock {held}"
            self._say("what earlier pushes left out is lost", server=self.index, clock=clock, why=why)

    def resume(self) -> pb.ResumeReply:
        """Reports this worker's clock, and gets the slice's state."""
        reply = self._transport.resume(
            pb.ResumeRequest(
                worker=self._worker,
                incarnation=self.incarnation,
                clock=self.answered,
                tensors=self._tensors,
                plan_hash=self._plan.hash,
                protocol=PROTOCOL,
            ),
            timeout=10.0,
        )
        if reply.lost_last:
            self._say("a restart lost pushes", server=self.index, first=reply.lost_first, last=reply.lost_last)
        if reply.phase == "empty" and self.answered:
            raise no_snapshot(self.index)
        if self.term and reply.term != self.term:
            self._say("server is back under a new term", server=self.index, term=reply.term, version=reply.version)
        self.term = reply.term
        return reply

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
        )

        def send() -> pb.InitialiseReply:
            try:
                return self._transport.initialise(head, encoded_parts(mine, codec, self._part_bytes), self._timeout)
            except TryAgain:
                self._introduce()
                raise

        retried(send, self._deadline, f"server {self.index}", self._stop, self._say)

    def pull(self, version: int | None, target: Vector, is_patient: bool = True, mean: bool = False) -> int:
        """Weights of `version` (None, or where it is not kept any more: the newest) into the flat model; returns which.
        An impatient caller also gets the newest if the version does not come within 20 s. `mean`: the mean of the versions
        up to that one instead, if the run has one."""
        request = pb.PullRequest(
            reader=self._worker, plan_hash=self._plan.hash, codec=self._pull_codec.name, version=version, mean=mean
        )
        for pause in backoff():
            try:
                head = self._transport.pull(request, lambda head: self._sink(head, target), self._timeout)
                if head.outcome != pb.WAIT:
                    return self._took(head)
                if not is_patient:
                    request.ClearField("version")
            except VersionGone:
                request.ClearField("version")
            except TryAgain as error:
                self._failed(error)
                self._introduce()
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
    ) -> pb.PullHead:
        """Sends this clock's update (None: an empty one) until it is answered, byte for byte the same, and receives the
        weights where `choose` says where to. `base`: the weights that the update was computed on;
        `manner`: how the server is to step with it.
        Raises Fenced, BadPush and the like; ServersGone at the deadline."""
        owed = self.owed
        if owed is not None and clock <= owed.clock:
            gradient = None  # an earlier process has sent it, and the server has counted it
        head = self._head(clock, view, examples, base)
        head.elements = 0 if gradient is None else self._length
        head.rates.extend(manner.rates)
        head.untouched.extend(manner.untouched)
        parts = self._encoded(clock, gradient)
        answer = self._answered(head, lambda: self._send(head, () if head.ask else parts, choose), lambda found: found)
        if answer.outcome == pb.DROPPED and owed is not None and gradient is not None:
            owed.take_back(self._gather(gradient))
        return answer

    def push_sparse(
        self, clock: int, view: int, update: Sparse, examples: int, base: Base, wanted: Places | None
    ) -> pb.PushPullSparseReply:
        """The same for the change of a few elements of this slice; the reply brings the weights that are wanted, or those
        that differ from `base` (None). DataError where the update is too large for one message."""
        message = pb.PushPullSparseRequest(
            head=self._head(clock, view, examples, base),
            places=encode_places(update.places),
            values=encoded(update.values, self._push_codec),
            wanted=None if wanted is None else encode_places(wanted),
        )
        if message.ByteSize() > LARGEST:
            raise DataError(
                f"A push has {len(update.places):,} weights for server {self.index}, {message.ByteSize():,} bytes; at most "
                f"{LARGEST:,} go into one message. Set svm.batches or batch_size lower, or use more servers."
            )

        def send() -> pb.PushPullSparseReply:
            found = self._transport.push_sparse(message, self._timeout)
            if found.head.outcome != pb.WAIT:
                self._check_term(found.head)
                self._open = None
                self._took(found.head)
            return found

        return self._answered(message.head, send, lambda found: found.head)

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
            codec=self._push_codec.name,
            pull_codec=self._pull_codec.name,
        )

    def _answered(self, head: pb.PushHead, send: Callable[[], T], head_of: Callable[[T], pb.PullHead]) -> T:
        """Sends until the push is answered; sets head.ask if the server already has it."""
        clock = head.clock
        pauses = backoff()
        while True:
            try:
                answer = send()
                if head_of(answer).outcome != pb.WAIT:
                    self.answered = clock
                    return answer
                head.ask = True
            except Gap:
                head.ask = self._was_counted(clock)
                self._pause(next(pauses))
            except TryAgain as error:
                self._failed(error)
                self._pause(next(pauses))
                head.ask = self._was_counted(clock)

    def _send(self, head: pb.PushHead, parts: Parts, choose: Choose | None) -> pb.PullHead:
        """Makes one attempt."""
        if choose is None:
            answer = self._transport.push(head, parts, self._timeout)
            if answer.outcome != pb.WAIT:
                self.lr = answer.lr
                self.term = answer.term
            return answer
        where = choose
        answer = self._transport.push_pull(head, parts, lambda found: self._sink(found, where(found)), self._timeout)
        if answer.outcome != pb.WAIT:
            self._took(answer)
        return answer

    @property
    def is_stale(self) -> bool:
        """Whether the server has begun a new term since the weights came: what is computed on them is dropped."""
        return self.term != self.base.term

    def _was_counted(self, clock: int) -> bool:
        """After a failure: whether the server has this clock, as soon as it can say so."""
        for pause in backoff():
            try:
                standing = self.resume()
                if standing.phase == "serving":
                    return standing.clock >= clock
            except TryAgain as error:
                self._failed(error)
            self._pause(pause)
        raise AssertionError("backoff never ends")

    def _introduce(self) -> None:
        """After a failure: a server that was started again serves nobody before all members have said Resume. Readers, who
        never attach, are none."""
        if self.incarnation:
            with suppress(TryAgain):
                self.resume()

    def _pause(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped("The process was told to stop.")

    def _failed(self, error: TryAgain) -> None:
        """Counts a temporary failure; ServersGone if no time is left for another attempt."""
        self.retries += 1
        self._on_retry(error.status)
        if time.monotonic() > self._deadline:
            raise ServersGone(f"Server {self.index} did not answer until the run's deadline: {error}") from error

    def _took(self, head: pb.PullHead) -> int:
        """Notes which weights have come; TryAgain where the stream ended before all had."""
        if self._open is not None and self._open.filled != head.elements:
            raise TryAgain(f"Server {self.index} sent {self._open.filled:,} of {head.elements:,} weights.")
        self.base = Base(head.term, head.version)
        self.term = head.term
        self.lr = head.lr
        return head.version

    def _check_term(self, head: pb.PullHead) -> None:
        if head.term < self.term:
            raise TryAgain(f"Server {self.index} answered from its past: term {head.term}, it is at {self.term}.")

    def _sink(self, head: pb.PullHead, target: Vector) -> SliceSink:
        if head.elements not in (0, self._length):
            raise BadPush(f"Server {self.index} announces {head.elements:,} weights, expected {self._length:,}.")
        if head.outcome != pb.WAIT:
            self._check_term(head)
        self._open = SliceSink(target, self.ranges, weights_codec(head.codec))
        return self._open

    def _gather(self, model: Vector) -> Vector:
        """The slice's elements as one array; a view where they lie together."""
        views = [model[part.start : part.stop] for part in self.ranges]
        return views[0] if len(views) == 1 else np.concatenate(views) if views else np.empty(0, np.float32)

    def _encoded(self, clock: int, gradient: Vector | None) -> list[tuple[int, memoryview]]:
        """The slice's parts of this clock's push, encoded once; without a codec they are the gradient's own memory."""
        owed, codec = self.owed, self._push_codec
        if gradient is None:
            if owed is not None and clock > owed.clock:
                owed.skip(clock)
            return []
        feedback = None if owed is None else owed.feedback(codec)
        parts = list(encoded_parts(self._gather(gradient), codec, self._part_bytes, self._scratch, feedback))
        if owed is not None:
            owed.sent(clock)
        return parts


def no_snapshot(server: int) -> DataError:
    """The error to raise when a server has lost its state."""
    return DataError(f"Server {server} came back without its snapshot. Give it its folder back, or start the run over.")
