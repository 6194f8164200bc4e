"""The data plane on grpcio: streams of hand-framed messages, one stream for each exchange."""

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from paceline.core.errors import BadPush, TryAgain
from paceline.rpc.bounds import check
from paceline.rpc.channel import call, translated
from paceline.rpc.transport import OpenSink, Outgoing, ParameterService, Parts, Transport, Upload, in_pieces
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import Message, check_head, frame, parse
from paceline.v1 import parameter_service_pb2 as pb

T = TypeVar("T")
SERVICE = "paceline.v1.ParameterService"


class GrpcTransport(Transport):
    """Calls one server through a channel."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._resume = channel.unary_unary(
            f"/{SERVICE}/Resume", pb.ResumeRequest.SerializeToString, pb.ResumeReply.FromString
        )
        self._initialise = channel.stream_unary(f"/{SERVICE}/Initialise", None, pb.InitialiseReply.FromString)
        self._push_pull = channel.stream_stream(f"/{SERVICE}/PushPull", None, None)
        self._push = channel.stream_unary(f"/{SERVICE}/Push", None, pb.PushReply.FromString)
        self._ask = channel.unary_stream(f"/{SERVICE}/Ask", pb.AskRequest.SerializeToString, None)
        self._push_sparse = channel.stream_unary(
            f"/{SERVICE}/PushPullSparse", pb.PushPullSparseRequest.SerializeToString, pb.PushPullSparseReply.FromString
        )
        self._ask_sparse = channel.stream_unary(
            f"/{SERVICE}/AskSparse", pb.AskSparseRequest.SerializeToString, pb.AskSparseReply.FromString
        )
        self._pull = channel.unary_stream(f"/{SERVICE}/Pull", pb.PullRequest.SerializeToString, None)

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        reply: pb.ResumeReply = call(self._resume, request, timeout)
        return reply

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        reply: pb.InitialiseReply = sent(self._initialise, head, parts, timeout)
        return reply

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        moving = Moving(timeout)
        return received(self._push_pull(moving.out(frames(head, parts))), open_sink, moving)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        reply: pb.PushReply = sent(self._push, head, parts, timeout)
        return reply.head

    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return received(self._ask(request), open_sink, Moving(timeout))

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        reply: pb.PushPullSparseReply = _sent_alone(self._push_sparse, request, timeout)
        return reply

    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        reply: pb.AskSparseReply = _sent_alone(self._ask_sparse, request, timeout)
        return reply.answer

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return received(self._pull(request), open_sink, Moving(timeout))


class GrpcServicer:
    """Offers a ParameterService to gRPC clients; stock protobuf clients are served as well."""

    def __init__(self, service: ParameterService, watchdog: Watchdog) -> None:
        self._service = service
        self._watchdog = watchdog

    def add_to(self, server: grpc.Server) -> None:
        """Registers the service's methods."""
        handlers = {
            "Resume": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._service.resume(request),
                pb.ResumeRequest.FromString,
                pb.ResumeReply.SerializeToString,
            ),
            "Initialise": grpc.stream_unary_rpc_method_handler(
                self._initialise, None, pb.InitialiseReply.SerializeToString
            ),
            "PushPull": grpc.stream_stream_rpc_method_handler(self._push_pull, None, None),
            "Push": taking(
                lambda head, is_there: self._service.push(head, is_there),
                lambda: self._service.most_head,
                pb.PushReply,
                self._watchdog,
            ),
            "Ask": giving(
                lambda request, is_there: self._service.ask(request, is_there), pb.AskRequest, self._watchdog
            ),
            "PushPullSparse": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._service.push_sparse(request, context.is_active),
                pb.PushPullSparseRequest.FromString,
                pb.PushPullSparseReply.SerializeToString,
            ),
            "ExchangeSparse": grpc.stream_stream_rpc_method_handler(
                self._exchange_sparse, pb.PushPullSparseRequest.FromString, pb.PushPullSparseReply.SerializeToString
            ),
            "AskSparse": grpc.unary_unary_rpc_method_handler(
                lambda request, context: self._service.ask_sparse(request, context.is_active),
                pb.AskSparseRequest.FromString,
                pb.AskSparseReply.SerializeToString,
            ),
            "Pull": giving(
                lambda request, is_there: self._service.pull(request, is_there), pb.PullRequest, self._watchdog
            ),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))

    def _push_pull(self, messages: Iterator[bytes], context: Any) -> Iterator[bytes]:
        head, parts = _opened(self._watchdog.receiving(messages, context.cancel), self._service.most_head)
        with self._service.push(head, context.is_active) as upload:
            _pour(parts, upload)
            with upload.finish(True) as outgoing:
                answer = frames(outgoing.head, outgoing.parts)
                yield from self._watchdog.sending(answer, context.cancel)

    def _exchange_sparse(
        self, requests: Iterator[pb.PushPullSparseRequest], context: Any
    ) -> Iterator[pb.PushPullSparseReply]:
        pushes = self._watchdog.receiving(requests, context.cancel)
        answers = (self._service.push_sparse(push, context.is_active) for push in pushes)
        yield from self._watchdog.sending(answers, context.cancel)

    def _initialise(self, messages: Iterator[bytes], context: Any) -> pb.InitialiseReply:
        head, parts = _opened(self._watchdog.receiving(messages, context.cancel), self._service.most_head)
        with self._service.initialise(head, context.is_active) as upload:
            _pour(parts, upload)
            with upload.finish(False) as outgoing:
                return pb.InitialiseReply(term=outgoing.head.term)


def taking(
    serve: Callable[..., AbstractContextManager[Upload]],
    most: Callable[[], int],
    reply: Callable[..., ProtoMessage],
    watchdog: Watchdog,
) -> Any:
    """A handler of calls that send parts, after a head of at most `most` bytes, and are answered with a head, as a `reply`."""

    def take(messages: Iterator[bytes], context: Any) -> ProtoMessage:
        head, parts = _opened(watchdog.receiving(messages, context.cancel), most())
        with serve(head, context.is_active) as upload:
            _pour(parts, upload)
            with upload.finish(False) as outgoing:
                return reply(head=outgoing.head)

    return grpc.stream_unary_rpc_method_handler(take, None, lambda answer: answer.SerializeToString())


def giving(
    serve: Callable[..., AbstractContextManager[Outgoing]], request: type[ProtoMessage], watchdog: Watchdog
) -> Any:
    """A handler of calls with one `request` that are answered with a head and parts."""

    def give(asked: ProtoMessage, context: Any) -> Iterator[bytes]:
        with serve(asked, context.is_active) as outgoing:
            yield from watchdog.sending(frames(outgoing.head, outgoing.parts), context.cancel)

    return grpc.unary_stream_rpc_method_handler(give, request.FromString, None)


def frames(head: pb.PushHead | pb.PullHead, parts: Parts) -> Iterator[bytes]:
    """The head with the first part, then the other parts. A part is cut where its codec lets it be: the two ends see no more
    of a message than that it has moved as a whole."""
    first = head.SerializeToString()
    for offset, data in in_pieces(head.codec, parts):
        yield frame(first, offset, data)
        first = b""
    if first:
        yield frame(first, 0, b"")


def push_head(raw: bytes) -> pb.PushHead:
    """The head of a push; BadPush where it is none, or does not fit its rules."""
    try:
        head = pb.PushHead.FromString(raw)
    except DecodeError as error:
        raise BadPush("The head of the push is damaged: it is not a PushHead. Compare the versions.") from error
    check(head)
    return head


def _opened(messages: Iterator[bytes], most: int) -> tuple[pb.PushHead, Iterator[Message]]:
    """The head of a push, and all its messages, the first one included."""
    first = next(messages, None)
    if first is None:
        raise BadPush("The stream ended before its first message; send a part with a head.")
    message = parse(first)
    check_head(len(message.head), most)
    return push_head(message.head), itertools.chain((message,), map(parse, messages))


def _pour(messages: Iterator[Message], upload: Upload) -> None:
    for message in messages:
        if len(message.data):
            upload.take(message.offset, message.data)


@cache
def _watchdog() -> Watchdog:
    """This process's, for the calls that it makes."""
    watchdog = Watchdog()
    watchdog.start()
    return watchdog


class Moving:
    """One call over grpcio that goes on as long as a message moves every `timeout` seconds, in either direction."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._now = _watchdog().now
        self._last = self._now()
        self._is_late = False

    def out(self, messages: Iterator[bytes]) -> Iterator[bytes]:
        """What is sent."""
        for message in messages:
            yield message
            self._last = self._now()  # it has been taken

    def alone(self, message: T) -> Iterator[T]:
        """The one message that is sent. Nobody sees how much of it has moved, so until it has been taken the call ends only
        with its connection, where nobody answers pings."""
        self._last = math.inf
        yield message
        self._last = self._now()

    def came(self, messages: Iterator[T]) -> Iterator[T]:
        """What is received."""
        for message in messages:
            self._last = self._now()
            yield message

    @contextmanager
    def watched(self, answer: Any) -> Iterator[None]:
        """Around what waits for the answer. Raises what the far side raised; TryAgain where nothing moves."""

        def cancel() -> None:
            self._is_late = True
            answer.cancel()

        try:
            with _watchdog().waiting(lambda: self._last, cancel, self._timeout):
                yield
        except (grpc.RpcError, grpc.FutureCancelledError) as error:
            if self._is_late:
                raise TryAgain(f"DEADLINE_EXCEEDED: no message has moved for {self._timeout:.0f} s.") from None
            if not isinstance(error, grpc.RpcError):
                raise TryAgain("CANCELLED: the call was given up.") from None
            raise translated(error) from None


def sent(method: Any, head: pb.PushHead, parts: Parts, timeout: float) -> Any:
    """Sends the parts, and returns the answer. Raises what the far side raised; TryAgain where nothing moves for `timeout`
    seconds."""
    moving = Moving(timeout)
    return _answer(method, moving.out(frames(head, parts)), moving)


def _sent_alone(method: Any, request: ProtoMessage, timeout: float) -> Any:
    """The same for one message, however large. `method`: takes a stream, since only that shows when the message has been
    taken."""
    moving = Moving(timeout)
    return _answer(method, moving.alone(request), moving)


def _answer(method: Any, messages: Iterator[Any], moving: Moving) -> Any:
    answer = method.future(messages)
    with moving.watched(answer):
        return answer.result()


def received(messages: Any, open_sink: OpenSink, moving: Moving) -> pb.PullHead:
    """Takes in a stream of weights; returns its head. Raises what the far side raised."""
    head: pb.PullHead | None = None
    sink = None
    try:
        with moving.watched(messages):
            for raw in moving.came(messages):
                message = parse(raw)
                if head is None:
                    head = pb.PullHead.FromString(message.head)
                    sink = open_sink(head)
                if len(message.data) and sink is not None:
                    sink.take(message.offset, message.data)
    finally:
        messages.cancel()  # nobody takes the rest where the sink has refused a part
    if head is None:
        raise TryAgain("The server closed the stream without an answer.")
    return head
