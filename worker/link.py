"""A worker's line to one server: sends a push until it is answered, and receives weights into the flat model."""

import hashlib
import time
from collections.abc import Callable

import numpy as np

from paceline.core.codec import Codec, load_codec
from paceline.core.config import Config
from paceline.core.errors import BadPush, DataError, Gap, ServersGone, TryAgain, VersionGone
from paceline.core.plan import Range, SlicePlan
from paceline.core.values import Base, Vector
from paceline.rpc.channel import backoff
from paceline.rpc.transport import Transport, encoded_parts
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.tensor_pb2 import Tensor

_HOLD = 20.0
_SLOWEST = 4e6
"""A transfer slower than this is given up and repeated (bytes/s)."""
Choose = Callable[[pb.PullHead], Vector]
"""Picks the flat vector (of the whole model) that a reply's weights go to."""


class Link:
    """One server's slice as a worker sees it. One exchange at a time; `resume` may be called by another thread."""

    def __init__(
        self, index: int, transport: Transport, plan: SlicePlan, config: Config, worker: str, deadline: float,
        say: Callable[..., None],
    ) -> None:  # fmt: skip
        self.index, self._transport, self._plan, self._worker = index, transport, plan, worker
        self.ranges, self._length = plan.slices[index], plan.lengths[index]
        self._deadline, self._say = deadline, say
        self._push_codec, self._pull_codec = load_codec(config.codec.push), load_codec(config.codec.pull)
        self._part_elements = config.part_bytes // 4
        self._timeout = _HOLD + 10 + 8 * self._length / _SLOWEST
        self._scratch = None if self._push_codec.lossless else np.empty(self._push_codec.bytes_for(self._length), np.uint8)
        self._tensors = [Tensor(name=name, shape=shape) for name, shape in plan.shapes]
        self.incarnation = 0
        self.answered = 0
        """Newest clock that this server has answered."""
        self.term = 0
        self.base = Base(0, 0)
        """Term and version of the weights that came last."""
        self.retries = 0

    def resume(self) -> pb.ResumeReply:
        """Says where this worker stands, and learns where the slice is."""
        reply = self._transport.resume(
            pb.ResumeRequest(
                worker=self._worker, incarnation=self.incarnation, clock=self.answered, tensors=self._tensors,
                plan_hash=self._plan.hash,
            ), timeout=10.0,
        )  # fmt: skip
        if reply.lost_last:
            self._say("a restart lost pushes", server=self.index, first=reply.lost_first, last=reply.lost_last)
        if reply.phase == "empty" and self.answered:
            raise DataError(
                f"Server {self.index} came back without its snapshot. Give it its folder back, or start the run over."
            )
        if self.term and reply.term != self.term:
            self._say("server is back under a new term", server=self.index, term=reply.term, version=reply.version)
        self.term = reply.term
        return reply

    def initialise(self, model: Vector) -> None:
        """Sends the first weights of the slice."""
        mine = self._gather(model)
        codec = load_codec("none")
        head = pb.PushHead(
            worker=self._worker, plan_hash=self._plan.hash, codec=codec.name, elements=self._length,
            digest=hashlib.sha256(mine.data).digest(),
        )  # fmt: skip
        self._transport.initialise(head, encoded_parts(mine, codec, self._part_elements), self._timeout)

    def pull(self, version: int | None, target: Vector) -> int:
        """Weights of `version` (where it is not kept any more, or None: the newest) into the flat model; returns which."""
        request = pb.PullRequest(
            reader=self._worker, plan_hash=self._plan.hash, codec=self._pull_codec.name, version=version
        )
        for pause in backoff():
            try:
                head = self._transport.pull(request, lambda head: self._sink(head, target), self._timeout)
                if head.outcome != pb.WAIT:
                    return self._took(head)
            except VersionGone:
                request.ClearField("version")
            except TryAgain as error:
                self._check_time(error)
            time.sleep(pause)
        raise AssertionError("backoff never ends")

    def push_pull(
        self, clock: int, view: int, gradient: Vector | None, examples: int, choose: Choose
    ) -> pb.PullHead:
        """Sends this clock's update (None: an empty one) until it is answered, byte for byte the same, and receives the
        weights. Raises Fenced, BadPush and the like; ServersGone at the deadline."""
        head = pb.PushHead(
            worker=self._worker, incarnation=self.incarnation, clock=clock, examples=examples, view=view,
            base_term=self.base.term, base_version=self.base.version, plan_hash=self._plan.hash,
            codec=self._push_codec.name, pull_codec=self._pull_codec.name, elements=0 if gradient is None else self._length,
        )  # fmt: skip
        parts = [] if gradient is None else self._encoded(gradient)
        pauses = backoff()
        while True:
            try:
                answer = self._transport.push_pull(
                    head, () if head.ask else parts, lambda found: self._sink(found, choose(found)), self._timeout
                )
                if answer.outcome != pb.WAIT:
                    self.answered = clock
                    self._took(answer)
                    return answer
                head.ask = True
            except Gap:
                head.ask = self._was_counted(clock)
                time.sleep(next(pauses))
            except TryAgain as error:
                self.retries += 1
                self._check_time(error)
                time.sleep(next(pauses))
                head.ask = self._was_counted(clock)

    def _was_counted(self, clock: int) -> bool:
        """After a failure: whether the server has this clock, as soon as it can say so."""
        for pause in backoff():
            try:
                standing = self.resume()
                if standing.phase == "serving":
                    return standing.clock >= clock
            except TryAgain as error:
                self._check_time(error)
            time.sleep(pause)
        raise AssertionError("backoff never ends")

    def _check_time(self, error: Exception) -> None:
        if time.monotonic() > self._deadline:
            raise ServersGone(f"Server {self.index} did not answer until the run's deadline: {error}") from error

    def _took(self, head: pb.PullHead) -> int:
        self.base, self.term = Base(head.term, head.version), head.term
        return head.version

    def _sink(self, head: pb.PullHead, target: Vector) -> "SliceSink":
        if head.elements not in (0, self._length):
            raise BadPush(f"Server {self.index} announces {head.elements:,} weights, expected {self._length:,}.")
        return SliceSink(target, self.ranges, load_codec(head.codec or "none"))

    def _gather(self, model: Vector) -> Vector:
        """The slice's elements as one array; a view where they lie together."""
        views = [model[part.start : part.stop] for part in self.ranges]
        return views[0] if len(views) == 1 else np.concatenate(views) if views else np.empty(0, np.float32)

    def _encoded(self, model: Vector) -> list[tuple[int, memoryview]]:
        """The slice's parts, encoded once; without a codec they are the model's own memory."""
        return list(encoded_parts(self._gather(model), self._push_codec, self._part_elements, self._scratch))


class SliceSink:
    """Puts a slice's parts where they belong in the flat model."""

    def __init__(self, model: Vector, ranges: tuple[Range, ...], codec: Codec) -> None:
        self._codec, self._each, self._filled = codec, codec.bytes_for(1), 0
        self._targets = [model[part.start : part.stop] for part in ranges]

    def take(self, offset: int, data: memoryview) -> None:
        """Decodes a part; it must follow the last one."""
        if offset != self._filled:
            raise BadPush(f"A part starts at element {offset:,}, expected {self._filled:,}.")
        while len(data):
            target = self._targets[0]
            count = min(len(target), len(data) // self._each)
            if not count:
                raise BadPush(f"{len(data)} bytes too many came after element {self._filled:,}.")
            self._codec.decode(data[: count * self._each], target[:count])
            data, self._filled = data[count * self._each :], self._filled + count
            self._targets[0] = target[count:]
            if not len(self._targets[0]):
                self._targets.pop(0)
