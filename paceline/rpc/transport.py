"""The data plane as both ends see it, on each transport: parts on their way to a sink, and what a server offers."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paceline.core.codecs.codec import Codec, codecs_that, load_codec
from paceline.core.codecs.error_feedback import ErrorFeedback
from paceline.core.codecs.slice_codec import SliceCodec
from paceline.core.errors import BadPush, ConfigError
from paceline.core.values import Vector
from paceline.v1 import parameter_service_pb2 as pb

Parts = Iterable[tuple[int, memoryview]]
"""(first element, encoded elements) in order, covering a slice once. A client's must keep their bytes until the call ends: the
next one may be asked for before one is sent."""


class Sink(Protocol):
    """Where the parts of one stream go."""

    def buffer(self, offset: int, length: int) -> memoryview | None:
        """Where the `length` bytes of the next part may be put before `take` gets that very view; None: anywhere,
        and the bytes are gone after `take`."""

    def take(self, offset: int, data: memoryview) -> None:
        """Elements from `offset` on, encoded; they must follow the last ones without a gap (BadPush)."""


PIECE = 256 << 10
"""Bytes of a part's pieces, where its progress counts: over a line of 10 KB/s one moves in each `IDLE` seconds."""

OpenSink = Callable[[pb.PullHead], Sink]
"""Chooses the sink when the head of a reply has come."""


class Transport(ABC):
    """A worker's way to one server. Every call raises what the server raised; TryAgain for errors that may pass."""

    @abstractmethod
    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        """ParameterService.Resume."""

    @abstractmethod
    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        """ParameterService.Initialise."""

    @abstractmethod
    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """ParameterService.PushPull: returns the head of the reply when all its parts are in the sink."""

    @abstractmethod
    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        """ParameterService.Push: as PushPull, but the reply brings no weights."""

    @abstractmethod
    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """ParameterService.Ask: returns the head of the reply when its parts, if any are wanted, are in the sink."""

    @abstractmethod
    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        """ParameterService.PushPullSparse."""

    @abstractmethod
    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        """ParameterService.AskSparse."""

    @abstractmethod
    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """ParameterService.Pull, in the same way."""

    @property
    def silence(self) -> float:
        """For how long the server has not even answered a ping while a call waits for it (seconds); 0 where it does, or where
        the transport does not know."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A server's reply: its head, and the parts, which may be read once while the block is open."""

    head: pb.PullHead
    parts: Iterator[tuple[int, memoryview]]


class Upload(Sink, Protocol):
    """A push on its way in; leaving the block without `finish` forgets it."""

    def finish(self, wants_weights: bool) -> AbstractContextManager[Outgoing]:
        """All parts are in: hands the push to the slice and waits for the reply (WAIT after 20 s)."""


IsThere = Callable[[], bool]
"""Whether the caller still waits for its answer. Asked before each wait: the data plane may have to find another thread for
what this one does besides the call (TryAgain where there is none)."""


class ParameterService(Protocol):
    """What a server offers on its data plane. Calls that wait end with TryAgain when the caller has gone away."""

    @property
    def most_head(self) -> int:
        """Most bytes of a push's head (`wire.most_head`)."""

    def resume(self, request: pb.ResumeRequest) -> pb.ResumeReply: ...

    def initialise(self, head: pb.PushHead, is_there: IsThere) -> AbstractContextManager[Upload]: ...

    def push(self, head: pb.PushHead, is_there: IsThere) -> AbstractContextManager[Upload]: ...

    def ask(self, request: pb.AskRequest, is_there: IsThere) -> AbstractContextManager[Outgoing]: ...

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply: ...

    def ask_sparse(self, request: pb.AskSparseRequest, is_there: IsThere) -> pb.AskSparseReply: ...

    def pull(self, request: pb.PullRequest, is_there: IsThere) -> AbstractContextManager[Outgoing]: ...


def encoded(values: Vector, codec: Codec) -> bytes:
    """The values of a sparse message."""
    if codec.lossless:
        return values.tobytes()
    out = np.empty(codec.most_bytes(len(values)), np.uint8)
    return out[: codec.encode(values, out)].tobytes()


def decoded(data: bytes, codec: Codec, count: int, who: str) -> Vector:
    """The `count` values of a sparse message. BadPush where they are not this many, or not finite."""
    if (found := codec.elements_in(data)) != count:
        raise BadPush(f"{who} sent {found:,} values ({len(data):,} bytes as {codec.name}) for {count:,} positions.")
    values = np.empty(count, np.float32)
    codec.decode(data, values)
    if not np.isfinite(values).all():
        raise BadPush(f"{who} sent NaN or infinity. Nothing was changed.")
    return values


def weights_codec(name: str) -> Codec:
    """The codec of that name, to carry weights. BadPush where it leaves some out."""
    codec = load_codec(name or "none")
    if not codec.keeps_all:
        raise BadPush(
            f"Weights can't be sent as {codec.name}, which leaves some of them out. Set codec.pull to "
            f"{codecs_that(lambda codec: codec.keeps_all)}."
        )
    return codec


def wide_enough(values: Vector) -> str:
    """The codecs in which these values, however large, can travel whole, for people."""

    def bears(codec: Codec) -> bool:
        found = values.copy()
        try:
            codec.round(found)
        except BadPush:
            return False
        return codec.keeps_all and not codec.biased and bool(np.isfinite(found).all())

    return codecs_that(bears)


def in_pieces(codec: str, parts: Parts) -> Parts:
    """Returns the encoded parts, cut into pieces of at most PIECE bytes where the codec of that name lets them be cut. One that
    is unknown here is for the far side to refuse."""
    try:
        return load_codec(codec or "none").pieces(parts, PIECE)
    except ConfigError:
        return parts


def room_for(codec: Codec | SliceCodec, part_bytes: int, length: int) -> int:
    """Bytes that hold all parts of a vector of that length."""
    return sum(cut.codec.most_bytes(cut.stop - cut.start) for cut in codec.cuts(length, part_bytes))


def encoded_parts(
    values: Vector,
    codec: Codec | SliceCodec,
    part_bytes: int,
    scratch: np.ndarray | None = None,
    feedback: ErrorFeedback | None = None,
) -> Iterator[tuple[int, memoryview]]:
    """A flat vector, cut and encoded into parts of at most `part_bytes`, through error feedback where there is some for
    its elements. With `scratch` (`room_for` bytes) each part keeps its own place; without it a part is valid until the
    next one."""
    if codec.lossless and feedback is None:
        raw = memoryview(values.data).cast("B")
        yield from ((cut.start, raw[4 * cut.start : 4 * cut.stop]) for cut in codec.cuts(len(values), part_bytes))
        return
    first, room = 0, np.empty(0, np.uint8) if scratch is None else scratch
    for start, stop, each, is_exact in codec.cuts(len(values), part_bytes):
        if scratch is None and len(room) < (most := each.most_bytes(stop - start)):
            room = np.empty(most, np.uint8)
        coder = each if feedback is None or is_exact else feedback.part(start, stop, each)
        size = coder.encode(values[start:stop], room[first:])
        yield start, room[first : first + size].data
        first += size if scratch is not None else 0
