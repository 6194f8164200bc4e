"""A data plane without a slice behind it, on either transport: it answers, waits and fails as the test says."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.codecs.codec import load_codec
from paceline.core.values import Vector
from paceline.rpc.auth import OPEN, Credentials, authentication
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcServicer, GrpcTransport
from paceline.rpc.host import bind, make_server
from paceline.rpc.lane.call import parameter_routes
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.transport import IsThere, Outgoing, Parts, Transport, encoded_parts
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import most_head
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.ports import own_port

PART = 1 << 18
"""Elements of a part."""
SOON = 20.0
"""Longest wait for what must happen (seconds)."""


class Service:
    """What is pushed comes back in the reply, twice as large. `at` names what is done at a point of a call: "head" (of a
    push), "part", "end" (all parts are in), "sparse", "ask", "pull", "resume"; it is given the call's `is_there`."""

    most_head = most_head(0)

    def __init__(self) -> None:
        self.at: dict[str, Callable[[IsThere], Any]] = {}
        self.left: queue.SimpleQueue[str] = queue.SimpleQueue()
        """Kinds of calls whose work has ended."""
        self.gone = threading.Event()
        """Set when `until_gone` has seen its caller go away."""
        self.first = np.empty(0, np.float32)

    def do(self, point: str, is_there: IsThere) -> None:
        if point in self.at:
            self.at[point](is_there)

    def until_gone(self, is_there: IsThere) -> None:
        """Waits as a server does for a caller that goes away."""
        deadline = time.monotonic() + SOON
        while is_there():
            assert time.monotonic() < deadline, "the caller has gone, and nobody said so"
            time.sleep(0.01)
        self.gone.set()

    def resume(self, request: pb.ResumeRequest) -> pb.ResumeReply:
        self.do("resume", lambda: True)
        return pb.ResumeReply(term=3, clock=request.clock, phase=pb.SLICE_PHASE_SERVING)

    @contextmanager
    def initialise(self, head: pb.PushHead, is_there: IsThere) -> Iterator["Upload"]:
        with self.push(head, is_there) as upload:
            self.first = upload.values
            yield upload

    @contextmanager
    def push(self, head: pb.PushHead, is_there: IsThere) -> Iterator["Upload"]:
        try:
            self.do("head", is_there)
            yield Upload(self, head, is_there)
        finally:
            self.left.put("push")

    @contextmanager
    def ask(self, request: pb.AskRequest, is_there: IsThere) -> Iterator[Outgoing]:
        """`clock` elements where weights are wanted, each that number."""
        clock = request.push.clock
        self.do("ask", is_there)
        yield outgoing(pb.PullHead(clock=clock), np.full(clock if request.weights else 0, clock, np.float32))

    def ask_sparse(self, request: pb.AskSparseRequest, is_there: IsThere) -> pb.AskSparseReply:
        self.do("ask", is_there)
        answer = pb.PushPullSparseReply(head=pb.PullHead(clock=request.push.clock), places=request.places)
        return pb.AskSparseReply(answer=answer)

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply:
        try:
            self.do("sparse", is_there)
            return pb.PushPullSparseReply(head=pb.PullHead(clock=request.head.clock), values=request.values, all=True)
        finally:
            self.left.put("sparse")

    @contextmanager
    def pull(self, request: pb.PullRequest, is_there: IsThere) -> Iterator[Outgoing]:
        """`version` elements, each that number."""
        try:
            self.do("pull", is_there)
            yield outgoing(pb.PullHead(version=request.version), np.full(request.version, request.version, np.float32))
        finally:
            self.left.put("pull")


class Upload:
    """A push's parts, in order, in an array of the announced length."""

    def __init__(self, service: Service, head: pb.PushHead, is_there: IsThere) -> None:
        self._service = service
        self._head = head
        self._is_there = is_there
        self.values = np.zeros(head.elements, np.float32)

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return self.values[offset : offset + length // 4].data.cast("B")

    def take(self, offset: int, data: memoryview) -> None:
        self._service.do("part", self._is_there)
        self.values[offset : offset + len(data) // 4] = np.frombuffer(data, np.float32)

    @contextmanager
    def finish(self, wants_weights: bool) -> Iterator[Outgoing]:
        self._service.do("end", self._is_there)
        head = pb.PullHead(clock=self._head.clock, term=7)
        yield outgoing(head, 2 * self.values if wants_weights else self.values[:0])


def outgoing(head: pb.PullHead, values: Vector) -> Outgoing:
    head.elements = len(values)
    return Outgoing(head, encoded_parts(values, load_codec("none"), 4 * PART))


class Gathered:
    """A sink that keeps everything; `part` is called with each."""

    def __init__(self, part: Callable[[], Any] = lambda: None) -> None:
        self.data = bytearray()
        self._part = part

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return None

    def take(self, offset: int, data: memoryview) -> None:
        self._part()
        assert offset == len(self.data) // 4
        self.data += data

    @property
    def values(self) -> Vector:
        return np.frombuffer(self.data, np.float32)


class Served:
    """A service on one of the transports, and clients of it; `calls` has what was counted. Its port is nobody else's once it
    has stopped, so its clients meet no stranger there."""

    def __init__(
        self,
        kind: str,
        service: Any,
        token: str = "",
        threads: int = 8,
        port: int | None = None,
        tls: Path | None = None,
    ) -> None:
        """`port`: that of an earlier one, to come back on it."""
        self.kind = kind
        self._token = token
        self._tls = tls
        self.port = port or own_port()
        self.watched = Watchdog()
        self.calls: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        observe = lambda name, status, seconds: self.calls.put((name, status))  # noqa: E731
        self.lane: LaneServer | None = None
        if kind == "lane":
            routes = parameter_routes(service)
            self.lane = LaneServer(
                routes, threads, authentication(Credentials(token)), observe, self.watched, self.port, tls
            )
            self.lane.start()
        else:
            self._grpc = make_server(threads, authentication(Credentials(token)), observe)
            GrpcServicer(service, self.watched).add_to(self._grpc)
            bind(self._grpc, self.port, "gRPC", tls)
            self._grpc.start()

    @property
    def address(self) -> str:
        return f"localhost:{self.port}"

    def transport(self, token: str | None = None) -> Transport:
        """A client; with the right token unless another is given."""
        return client(self.kind, self.address, Credentials(self._token if token is None else token, self._tls))

    def stop(self, grace: float = 0.0) -> None:
        """Returns when all calls have ended."""
        if self.lane is not None:
            self.lane.stop(grace)
        else:
            self._grpc.stop(grace).wait()


def client(kind: str, address: str, credentials: Credentials = OPEN) -> Transport:
    return LaneTransport(address, credentials) if kind == "lane" else GrpcTransport(open_channel(address, credentials))


def parts(values: Vector) -> Parts:
    return encoded_parts(values, load_codec("none"), 4 * PART)


def exchange(transport: Transport, values: Vector, clock: int = 1, timeout: float = SOON) -> Vector:
    """Pushes and gets weights."""
    sink = Gathered()
    head = pb.PushHead(worker="worker-0", clock=clock, elements=len(values))
    found = transport.push_pull(head, parts(values), lambda head: sink, timeout)
    assert (found.clock, found.elements, found.term) == (clock, len(values), 7)
    return sink.values


class Gate:
    """Holds a call until the test lets it go on; says that it has come so far."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.opened = threading.Event()

    def __call__(self, is_there: IsThere) -> None:
        assert is_there()
        self.reached.release()
        assert self.opened.wait(SOON)

    def wait(self) -> None:
        assert self.reached.acquire(timeout=SOON)
