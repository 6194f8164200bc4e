"""A worker's way to one server on the lane."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

from google.protobuf.message import Message

from paceline.core.errors import TryAgain
from paceline.rpc.auth import HEADER, bearer
from paceline.rpc.channel import ERROR_KEY, error_of
from paceline.rpc.grpc_plane import SERVICE
from paceline.rpc.lane.connection import Connection
from paceline.rpc.lane.frames import Code
from paceline.rpc.lane.messages import Pieces, cut, prefixed
from paceline.rpc.lane.sockets import PlainSocket
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.texts import NAMES, percent_decoded, timeout_field
from paceline.rpc.transport import OpenSink, Parts, Sink, Transport
from paceline.v1 import parameter_service_pb2 as pb

_PATIENCE = 20.0
_CONNECT = 5.0
"""Seconds that a connection may take."""


class LaneTransport(Transport):
    """One connection, made when it is needed and again when it is lost. Calls may run side by side."""

    def __init__(self, address: str, token: str = "") -> None:
        self._address, self._token = address, token
        self._connection: Connection | None = None
        self._lock = threading.Lock()

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        reply: pb.ResumeReply = self._one("Resume", _whole(request), pb.ResumeReply, timeout)
        return reply

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        messages = cut(head.SerializeToString(), parts)
        reply: pb.InitialiseReply = self._one("Initialise", messages, pb.InitialiseReply, timeout)
        return reply

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._weights("PushPull", cut(head.SerializeToString(), parts), open_sink, timeout)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        reply: pb.PullPart = self._one("Push", cut(head.SerializeToString(), parts), pb.PullPart, timeout)
        return reply.head

    def push_sparse(self, request: pb.SparsePush, timeout: float) -> pb.SparsePull:
        reply: pb.SparsePull = self._one("PushPullSparse", _whole(request), pb.SparsePull, timeout)
        return reply

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._weights("Pull", _whole(request), open_sink, timeout)

    def close(self) -> None:
        """Ends the connection and all calls on it."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()

    def _one(self, name: str, messages: Iterable[Pieces], kind: type[Any], timeout: float) -> Any:
        """A call with one message for an answer."""
        stream = self._call(name, messages, None, timeout)
        if len(stream.messages) != 1:
            raise TryAgain("The server ended the call without an answer.")
        return kind.FromString(stream.messages[0])

    def _weights(self, name: str, messages: Iterable[Pieces], open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """A call that is answered with a head and parts."""
        found: list[pb.PullHead] = []

        def opened(raw: bytes) -> Sink:
            found.append(pb.PullHead.FromString(raw))
            return open_sink(found[0])

        self._call(name, messages, opened, timeout)
        if not found:
            raise TryAgain("The server closed the stream without an answer.")
        return found[0]

    def _call(
        self, name: str, messages: Iterable[Pieces], opener: Callable[[bytes], Sink] | None, timeout: float
    ) -> Stream:
        """Sends all messages and waits for the answer's end. Raises what the server raised."""
        fields = {
            ":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{name}", ":authority": self._address,
            "te": "trailers", "content-type": "application/grpc", "grpc-timeout": timeout_field(timeout),
        }  # fmt: skip
        if self._token:
            fields[HEADER] = bearer(self._token)
        connection = self._connected()
        stream = connection.open(fields, opener)
        stream.deadline = time.monotonic() + timeout
        try:
            if opener is None:
                connection.grant(stream, stream.attach(None))
            _send(connection, stream, messages)
            if not stream.done.wait(max(0.0, stream.deadline - time.monotonic())):
                raise TryAgain(f"DEADLINE_EXCEEDED: the server did not answer within {timeout:.0f} s.")
            _check(stream)
            return stream
        finally:
            self._leave(connection, stream)

    def _leave(self, connection: Connection, stream: Stream) -> None:
        stream.take_back(connection.close)
        with suppress(TryAgain):  # the connection is lost
            connection.finish(stream, Code.CANCEL)

    def _connected(self) -> Connection:
        with self._lock:
            if self._connection is None or self._connection.why is not None or self._connection.is_draining:
                host, _, port = self._address.rpartition(":")
                try:
                    sock = socket.create_connection((host.strip("[]"), int(port)), _CONNECT)
                except OSError as error:
                    raise TryAgain(f"No connection to {self._address}: {error}.") from error
                connection = Connection(PlainSocket(sock, _PATIENCE))
                connection.start()
                self._connection = connection
            return self._connection


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
        raise TryAgain(f"This is no gRPC server: it answered with HTTP status {stream.fields.get(':status', '?')}.")
    status, text = NAMES.get(int(number), "UNKNOWN"), percent_decoded(trailers.get("grpc-message", ""))
    raise error_of(trailers.get(ERROR_KEY, ""), status, text)


def _whole(message: Message) -> Iterator[Pieces]:
    yield prefixed(message.SerializeToString()), memoryview(b"")
