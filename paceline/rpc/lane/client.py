"""The lane's calling end."""

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from queue import Empty
from typing import Any

from google.protobuf.message import Message

from paceline.core.errors import TryAgain
from paceline.rpc.auth import HEADER, OPEN, Credentials, held
from paceline.rpc.channel import ERROR_KEY, error_of
from paceline.rpc.grpc_plane import SERVICE
from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.frames import Code
from paceline.rpc.lane.grpc_texts import NAMES, percent_decoded
from paceline.rpc.lane.messages import Pieces, cut, prefixed
from paceline.rpc.lane.moves import Moves
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.tls import encrypted_client
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.tls import key_folder
from paceline.rpc.transport import OpenSink, Parts, Sink, Transport
from paceline.v1 import parameter_service_pb2 as pb

_PATIENCE = 20.0
_CONNECT = 5.0
"""Seconds that a connection may take."""


class Unreachable(TryAgain):
    """No connection can be made; nothing was sent."""


class LaneClient:
    """One connection, made when it is needed and again when it is lost. Calls, by path, may run side by side."""

    def __init__(self, address: str, credentials: Credentials = OPEN, traffic: Traffic | None = None) -> None:
        self.address = address
        self._held = held(credentials)
        self._traffic = traffic or Traffic()
        self._keys = key_folder(credentials.tls) if credentials.tls else None
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def close(self) -> None:
        """Ends the connection and all calls on it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    @property
    def silence(self) -> float:
        """For how long the server has answered nothing, not even a ping, while calls wait for it; 0 where it does (seconds)."""
        connection = self._connection
        return 0.0 if connection is None else connection.silence

    def greet(self) -> None:
        """Makes the connection, where there is none, and waits for the far side's first word. TryAgain where that fails."""
        if not self._connected().greeted.wait(_CONNECT):
            raise Unreachable(f"Nobody at {self.address} speaks HTTP/2.")

    def one(self, path: str, messages: Iterable[Pieces], kind: type[Any], timeout: float) -> Any:
        """A call with one message for an answer."""
        stream = self._call(path, messages, None, timeout)
        if (message := stream.message()) is None:
            raise TryAgain("The server ended the call without an answer.")
        return kind.FromString(message)

    def weights(self, path: str, messages: Iterable[Pieces], open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """A call that is answered with a head and parts."""
        found: list[pb.PullHead] = []

        def opened(raw: bytes) -> Sink:
            found.append(pb.PullHead.FromString(raw))
            return open_sink(found[0])

        self._call(path, messages, opened, timeout)
        if not found:
            raise TryAgain("The server closed the stream without an answer.")
        return found[0]

    def _call(
        self, path: str, messages: Iterable[Pieces], opener: Callable[[bytes], Sink] | None, timeout: float
    ) -> Stream:
        """Sends all messages and waits for the answer's end, as long as something moves. Raises what the server raised."""
        connection, stream = self._opened(path, opener)
        moves = Moves(connection, stream)
        moves.keep_deadline(timeout)
        try:
            _send(connection, stream, messages)
            while not stream.done.wait(moves.pause()):
                if not moves.pause():
                    raise _too_late(timeout)
            _check(stream)
            return stream
        finally:
            self._leave(connection, stream)

    def _opened(self, path: str, opener: Callable[[bytes], Sink] | None) -> tuple[Connection, Stream]:
        """A new call; without an opener its messages are kept."""
        fields = {
            ":method": "POST",
            ":scheme": "https" if self._keys else "http",
            ":path": path,
            ":authority": self.address,
            "te": "trailers",
            "content-type": "application/grpc",
        }
        if shown := self._held.shown():
            fields[HEADER] = shown
        connection = self._connected()
        stream = connection.open(fields, opener)
        if opener is None:
            connection.grant(stream, stream.attach(None))
        return connection, stream

    def _leave(self, connection: Connection, stream: Stream) -> None:
        stream.take_back(connection.close)
        with suppress(TryAgain):  # the connection is lost
            connection.finish(stream, Code.CANCEL)

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None or self._connection.why is not None or self._connection.is_draining:
                host, _, port = self.address.rpartition(":")
                try:
                    sock = socket.create_connection((host.strip("[]"), int(port)), _CONNECT)
                except OSError as error:
                    raise Unreachable(f"No connection to {self.address}: {error}.") from error
                connection = Connection(self._secured(sock), traffic=self._traffic)
                connection.start()
                self._connection = connection
            return self._connection

    def _secured(self, sock: socket.socket) -> PlainSocket:
        """By TLS where there are keys."""
        if self._keys is None:
            return PlainSocket(sock, _PATIENCE)
        return encrypted_client(sock, self._keys.newest().client, self.address, _PATIENCE)


class LaneTransport(LaneClient, Transport):
    """A worker's way to one server on the lane."""

    def __init__(self, address: str, credentials: Credentials = OPEN, traffic: Traffic | None = None) -> None:
        super().__init__(address, credentials, traffic)
        self._kept: tuple[Connection, Stream] | None = None
        self._kept_with = ""
        """The token that the stream was opened with."""
        """A stream for sparse pushes that is open and has no exchange just now."""

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        reply: pb.ResumeReply = self.one(f"/{SERVICE}/Resume", whole(request), pb.ResumeReply, timeout)
        return reply

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        messages = cut(head.SerializeToString(), parts)
        reply: pb.InitialiseReply = self.one(f"/{SERVICE}/Initialise", messages, pb.InitialiseReply, timeout)
        return reply

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self.weights(f"/{SERVICE}/PushPull", cut(head.SerializeToString(), parts), open_sink, timeout)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        reply: pb.PushReply = self.one(f"/{SERVICE}/Push", cut(head.SerializeToString(), parts), pb.PushReply, timeout)
        return reply.head

    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self.weights(f"/{SERVICE}/Ask", whole(request), open_sink, timeout)

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        shown = self._held.shown()
        connection, stream = self._open_stream(shown) or self._opened(f"/{SERVICE}/ExchangeSparse", None)
        moves = Moves(connection, stream)
        moves.keep_deadline(timeout)
        answer = None
        try:
            connection.send(stream, (prefixed(request.SerializeToString()),))
            answer = _awaited(stream, moves, timeout)
        finally:
            if answer is None:
                self._leave(connection, stream)
        self._keep(connection, stream, shown)
        return pb.PushPullSparseReply.FromString(answer)

    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        reply: pb.AskSparseReply = self.one(f"/{SERVICE}/AskSparse", whole(request), pb.AskSparseReply, timeout)
        return reply.answer

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self.weights(f"/{SERVICE}/Pull", whole(request), open_sink, timeout)

    def _open_stream(self, shown: str) -> tuple[Connection, Stream] | None:
        """The stream that is kept; None where it is taken, has ended, or was opened with another token than is `shown` now."""
        with self._lock:
            kept = self._kept
            self._kept = None
        if kept is not None:
            connection, stream = kept
            if (
                shown == self._kept_with
                and connection.why is None
                and not connection.is_draining
                and not stream.done.is_set()
            ):
                return kept
            self._leave(connection, stream)
        return None

    def _keep(self, connection: Connection, stream: Stream, shown: str) -> None:
        """For the next exchange; one is enough."""
        with self._lock:
            if self._kept is None:
                self._kept = connection, stream
                self._kept_with = shown
                return
        self._leave(connection, stream)


def _send(connection: Connection, stream: Stream, messages: Iterable[Pieces]) -> None:
    """All messages, unless the server has answered before: what it said is then the outcome."""
    last: Pieces | None = None
    for message in messages:
        if last is not None:
            connection.send(stream, last)
        last = message
        if stream.done.is_set():
            return
    connection.send(stream, last or (), end=True)


def _too_late(timeout: float) -> TryAgain:
    return TryAgain(f"DEADLINE_EXCEEDED: nothing came of the server, nor did it take anything, for {timeout:.0f} s.")


def _awaited(stream: Stream, moves: Moves, timeout: float) -> bytes:
    """The next message, as long as something moves."""
    while pause := moves.pause():
        with suppress(Empty):
            if (answer := stream.message(pause)) is None:
                _check(stream)
                raise TryAgain("The server ended the stream without an answer.")
            return answer
    raise _too_late(timeout)


def _check(stream: Stream) -> None:
    """Raises what the trailers or a failure say."""
    if stream.failure is not None and stream.trailers is None:
        raise stream.failure
    trailers = stream.trailers or {}
    number = trailers.get("grpc-status", "")
    if number == "0":
        if stream.failure is not None:
            raise stream.failure
        return
    if not number.isdecimal():
        raise TryAgain(f"This is not a gRPC server: it answered with HTTP status {stream.fields.get(':status', '?')}.")
    status, text = NAMES.get(int(number), "UNKNOWN"), percent_decoded(trailers.get("grpc-message", ""))
    raise error_of(trailers.get(ERROR_KEY, ""), status, text)


def whole(message: Message) -> Iterator[Pieces]:
    """One message as a stream of them."""
    yield prefixed(message.SerializeToString()), memoryview(b"")
