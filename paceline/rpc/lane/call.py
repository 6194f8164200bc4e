"""A call as a server of the lane sees it, and which of a servicer's methods answers it: the same servicer as on grpcio."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any

from google.protobuf.message import DecodeError, Message

from paceline.core.errors import BadPush, Overloaded, TryAgain
from paceline.rpc.bounds import check
from paceline.rpc.channel import ERROR_KEY
from paceline.rpc.grpc_plane import SERVICE, push_head
from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.frames import Code, Violation
from paceline.rpc.lane.grpc_texts import STATUS, percent_encoded, seconds_of
from paceline.rpc.lane.messages import Pieces, cut, prefixed
from paceline.rpc.lane.moves import Moves
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.threads import Threads
from paceline.rpc.transport import Outgoing, ParameterService, Sink, Upload
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import check_head
from paceline.v1 import parameter_service_pb2 as pb

OK = [(":status", "200"), ("content-type", "application/grpc")]
NO_THREAD = "The server has too many calls already, or is shutting down."


class Call:
    """One call as a server sees it, in a thread of the pool; a later exchange in the reader's, and between two in none."""

    def __init__(self, connection: Connection, stream: Stream, watchdog: Watchdog, threads: Threads) -> None:
        self.connection = connection
        self.stream = stream
        self._watchdog = watchdog
        self._threads = threads
        self.path = stream.fields.get(":path", "")
        self._is_lent = False
        stream.on_wait = self._read_elsewhere
        with suppress(ValueError):  # without a deadline, or with one that can't be read
            stream.deadline = time.monotonic() + seconds_of(stream.fields.get("grpc-timeout", ""))
        self._has_begun = False
        stream.clock = watchdog.now
        stream.touched = watchdog.now()

    def is_there(self) -> bool:
        """Whether the caller still waits."""
        return not self.stream.is_reset and time.monotonic() < self.stream.deadline

    def may_wait(self) -> bool:
        """The same, asked before each wait."""
        self._read_elsewhere()
        return self.is_there()

    def _read_elsewhere(self) -> None:
        """Where this is the reader's thread it counts as one of the pool's, and another one reads. TryAgain where there is
        none."""
        if not self.connection.is_read_here:
            return
        self._is_lent = self._threads.lend()
        try:
            if not self._is_lent:
                raise RuntimeError
            self.connection.read_elsewhere()
        except RuntimeError:
            raise TryAgain(NO_THREAD) from None

    def give_back(self) -> None:
        """Its thread ends, or reads again."""
        if self._is_lent:
            self._is_lent = False
            self._threads.give_back()

    @property
    def has_ended_well(self) -> bool:
        """Whether the caller has ended it between two exchanges."""
        stream = self.stream
        return self._has_begun and stream.is_over and (stream.failure is None or stream.is_reset)

    def unary(self, kind: type[Message], answer: Callable[[Any], Message]) -> None:
        """One message in, one out."""
        reply = answer(self._request(kind))
        self._reply(reply.SerializeToString())

    def exchange(self, kind: type[Message], answer: Callable[[Any], Message]) -> None:
        """The same, and another may follow on the stream."""
        if not self._has_begun:
            self.connection.grant(self.stream, self.stream.attach(None))
        with nullcontext() if self.stream.is_ready else self._watchdog.waiting(self._progress, self.cancel):
            message = self.stream.message()
        self._check()
        self._reply(answer(_parsed(kind, message)).SerializeToString())

    def download(self, kind: type[Message], serve: Callable[..., AbstractContextManager[Outgoing]]) -> None:
        """One message in, weights out."""
        with serve(self._request(kind), self.is_there) as outgoing:
            self._weights(outgoing)

    def upload(
        self,
        serve: Callable[..., AbstractContextManager[Upload]],
        most: Callable[[], int],
        wants_weights: bool,
        reply: Callable[[Outgoing], Message] | None,
    ) -> None:
        """Parts in, after a head of at most `most` bytes, and one message or weights out."""
        stream, most_head = self.stream, most()
        with self._watchdog.waiting(self._progress, self.cancel):
            self.connection.grant(stream, stream.expect_head(most_head))
            stream.first.wait()
        self._check()
        check_head(len(stream.head), most_head)
        with serve(push_head(stream.head), self.is_there) as upload:
            try:
                self._receive(upload)
            finally:
                stream.take_back(self.connection.close)
            with upload.finish(wants_weights) as outgoing:
                if reply is None:
                    self._weights(outgoing)
                else:
                    self._reply(reply(outgoing).SerializeToString())

    def refuse(self, status: str, text: str, kind: str) -> None:
        """Ends the call with an error."""
        fields = [("grpc-status", str(STATUS[status])), ("grpc-message", percent_encoded(text))]
        if kind:
            fields.append((ERROR_KEY, kind))
        with suppress(Exception):
            self.headers([*([] if self._has_begun else OK), *fields], end=True)

    def headers(self, fields: list[tuple[str, str]], end: bool = False) -> None:
        self._has_begun = True
        if self.is_there():
            self.connection.headers(self.stream, fields, end)

    def leave(self) -> None:
        """The call is over; nothing of it is kept."""
        self.stream.on_wait = None
        with suppress(Exception):
            self.connection.finish(self.stream, Code.NO_ERROR if self.stream.has_sent_all else Code.CANCEL)

    def cancel(self) -> None:
        """The far side has been idle for too long."""
        text = "The caller was idle for too long."
        if not self.stream.detach(Overloaded(text)) or self.connection.is_stuck:
            self.connection.close(Violation(Code.ENHANCE_YOUR_CALM, text))

    def _progress(self) -> float:
        return self.stream.touched

    def _check(self) -> None:
        if self.stream.is_reset:
            raise ConnectionAbortedError(str(self.stream.failure))
        if self.stream.failure is not None:
            raise self.stream.failure

    def _request(self, kind: type[Message]) -> Any:
        self._receive(None)
        return _parsed(kind, self.stream.message())

    def _receive(self, sink: Sink | None) -> None:
        """Puts all parts in the sink; without one keeps the message."""
        stream = self.stream
        with self._watchdog.waiting(self._progress, self.cancel):
            self.connection.grant(stream, stream.attach(sink))
            stream.done.wait()
        self._check()

    def _reply(self, message: bytes) -> None:
        self._send([(prefixed(message), memoryview(b""))])

    def _weights(self, outgoing: Outgoing) -> None:
        self._send(cut(outgoing.head.SerializeToString(), outgoing.parts))

    def _send(self, messages: Iterable[Pieces]) -> None:
        """The answer but for its trailers."""
        if not self._has_begun:
            self.headers(OK)
        moves = Moves(self.connection, self.stream, self._watchdog.now)
        with self._watchdog.waiting(moves.last, self.cancel):
            for message in messages:
                moves.note()
                self.connection.send(self.stream, message)


def _parsed(kind: type[Message], message: bytes | None) -> Any:
    if message is None:
        raise BadPush(f"This call takes a {kind.DESCRIPTOR.name}; none came.")
    try:
        found = kind.FromString(message)
    except DecodeError as error:
        raise BadPush(f"The message is damaged: it is not a {kind.DESCRIPTOR.name}. Compare the versions.") from error
    check(found)
    return found


Routes = Mapping[str, Callable[[Call], None]]
"""What answers the calls of a path, like /package.Service/Method."""


def parameter_routes(service: ParameterService) -> Routes:
    """A server's."""

    def sparse(call: Call) -> Callable[[pb.PushPullSparseRequest], pb.PushPullSparseReply]:
        return lambda request: service.push_sparse(request, call.may_wait)

    def most() -> int:
        return service.most_head

    answers: Routes = {
        "Resume": lambda call: call.unary(pb.ResumeRequest, service.resume),
        "PushPullSparse": lambda call: call.unary(pb.PushPullSparseRequest, sparse(call)),
        "ExchangeSparse": lambda call: call.exchange(pb.PushPullSparseRequest, sparse(call)),
        "AskSparse": lambda call: call.unary(
            pb.AskSparseRequest, lambda request: service.ask_sparse(request, call.is_there)
        ),
        "Initialise": lambda call: call.upload(
            service.initialise, most, False, lambda outgoing: pb.InitialiseReply(term=outgoing.head.term)
        ),
        "Push": lambda call: call.upload(service.push, most, False, lambda outgoing: pb.PushReply(head=outgoing.head)),
        "PushPull": lambda call: call.upload(service.push, most, True, None),
        "Ask": lambda call: call.download(pb.AskRequest, service.ask),
        "Pull": lambda call: call.download(pb.PullRequest, service.pull),
    }
    return {f"/{SERVICE}/{name}": answer for name, answer in answers.items()}
