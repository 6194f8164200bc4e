"""A lane with one assembly buffer, and a peer that writes its own HTTP/2 frames: right ones and wrong ones."""

import json
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import hpack
import numpy as np

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import BadPush, TryAgain
from paceline.core.values import Vector
from paceline.rpc.auth import HEADER, Credentials, authentication, bearer, held
from paceline.rpc.grpc_plane import SERVICE
from paceline.rpc.lane import frames
from paceline.rpc.lane.call import parameter_routes
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.lane.frames import Code, Kind
from paceline.rpc.lane.messages import cut
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.transport import IsThere, Outgoing, encoded_parts
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import most_head
from paceline.v1 import parameter_service_pb2 as pb

ELEMENTS, PART = 12_000, 4_000
"""Of the slice and of a part: more than is looked at as a whole, and a push and a part fit into a stream's first window."""
VALUES: Vector = np.arange(ELEMENTS, dtype=np.float32)
UNTOUCHED = np.float32(-12345.678)
"""What an element is before anything is put there."""
TOKEN = "the-right-secret-word"
SOON = 20.0
"""Longest wait for what must happen (seconds)."""
Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream and payload."""


class Slice:
    """Takes pushes in its only assembly buffer, as a server does; notes what it was given whole."""

    most_head = most_head(0)

    def __init__(self) -> None:
        self.folded: list[Vector] = []
        self.weights: Vector = VALUES
        self.begun = threading.Semaphore(0)
        self.placed = threading.Semaphore(0)
        self._buffer = threading.Semaphore(1)

    def resume(self, request: pb.ResumeRequest) -> pb.ResumeReply:
        return pb.ResumeReply(clock=request.clock)

    @contextmanager
    def push(self, head: pb.PushHead, is_there: IsThere) -> Iterator["Upload"]:
        if head.elements != ELEMENTS:
            raise BadPush(f"The head announces {head.elements} values; expected {ELEMENTS}.")
        if not self._buffer.acquire(timeout=SOON):
            raise TryAgain("The assembly buffer is never free.")
        self.begun.release()
        try:
            yield Upload(self)
        finally:
            self._buffer.release()

    initialise = push

    def ask_sparse(self, request: pb.AskSparseRequest, is_there: IsThere) -> pb.AskSparseReply:
        return pb.AskSparseReply()

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply:
        return pb.PushPullSparseReply(values=request.values)

    @contextmanager
    def pull(self, request: pb.PullRequest, is_there: IsThere) -> Iterator[Outgoing]:
        yield self.outgoing()

    @contextmanager
    def ask(self, request: pb.AskRequest, is_there: IsThere) -> Iterator[Outgoing]:
        yield self.outgoing()

    def outgoing(self) -> Outgoing:
        head = pb.PullHead(version=len(self.folded), elements=len(self.weights))
        return Outgoing(head, encoded_parts(self.weights, load_codec("none"), 4 * PART))


class Upload:
    """Parts that must cover the slice in order."""

    def __init__(self, owner: Slice) -> None:
        self._slice = owner
        self._values = np.full(ELEMENTS, UNTOUCHED)
        self._filled = 0

    def buffer(self, offset: int, length: int) -> memoryview:
        place = self._next(offset, length)
        self._slice.placed.release()
        return place

    def take(self, offset: int, data: memoryview) -> None:
        self._next(offset, len(data))[:] = data
        self._filled += len(data) // 4

    def _next(self, offset: int, length: int) -> memoryview:
        if offset != self._filled or length % 4 or offset + length // 4 > ELEMENTS:
            raise BadPush(f"{length} bytes for element {offset}; expected those from {self._filled} on.")
        return self._values[offset : offset + length // 4].data.cast("B")

    @contextmanager
    def finish(self, wants_weights: bool) -> Iterator[Outgoing]:
        if self._filled != ELEMENTS:
            raise BadPush(f"{self._filled} of {ELEMENTS} values came.")
        self._slice.folded.append(self._values)
        yield self._slice.outgoing()


class Clock:
    """The real time, and what the test adds to it."""

    def __init__(self) -> None:
        self.more = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self.more


class Lane:
    """A server of the lane with a Slice behind it."""

    def __init__(self, threads: int = 8) -> None:
        self.slice = Slice()
        self.clock = Clock()
        self.threads = threads
        self.watchdog = Watchdog(self.clock)
        self._outcomes: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        self._server = LaneServer(
            parameter_routes(self.slice),
            threads,
            authentication(Credentials(TOKEN)),
            lambda name, status, took: self._outcomes.put((name, status)),
            self.watchdog,
        )
        self.port = self._server.port
        self.traffic = self._server.traffic
        self._before = {thread.ident for thread in readers()}
        self._server.start()

    def serves(self) -> None:
        """A good client's push is folded, whole, and nobody else's is."""
        before = len(self.slice.folded)
        sink, head = Gathered(), pb.PushHead(worker="worker-0", elements=ELEMENTS)
        parts = encoded_parts(VALUES, load_codec("none"), 4 * PART)
        with closing(LaneTransport(f"localhost:{self.port}", Credentials(TOKEN))) as transport:
            found = transport.push_pull(head, parts, lambda head: sink, SOON)
        assert len(self.slice.folded) == found.version == before + 1
        assert np.array_equal(self.slice.folded[-1], VALUES)
        assert np.array_equal(np.frombuffer(sink.data, np.float32), self.slice.weights)

    def outcome(self, step: float = 0.0) -> tuple[str, str]:
        """Of the next call that ends; until then time passes for the watchdog, that many seconds at once."""
        end = time.monotonic() + SOON
        while True:
            with suppress(queue.Empty):
                return self._outcomes.get(timeout=0.02)
            assert time.monotonic() < end, "no call ends"
            self.passes(step)

    def outcomes(self) -> list[tuple[str, str]]:
        """Of the calls that have ended since it was asked last."""
        return [self._outcomes.get() for _ in range(self._outcomes.qsize())]

    def passes(self, seconds: float) -> None:
        """Time, for the watchdog."""
        self.clock.more += seconds
        self.watchdog.look()

    def is_quiet(self) -> None:
        """Waits until no connection is left; fails where one stays."""
        end = time.monotonic() + SOON
        while left := [thread for thread in readers() if thread.ident not in self._before]:
            assert time.monotonic() < end, left
            time.sleep(0.005)

    def close(self) -> None:
        self._server.stop(0)
        self.is_quiet()


class Gathered:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.data = bytearray()

    def buffer(self, offset: int, length: int) -> None:
        return

    def take(self, offset: int, data: memoryview) -> None:
        self.data += data


def readers() -> list[threading.Thread]:
    """The threads of all connections, ours and the server's."""
    return [thread for thread in threading.enumerate() if thread.name == "lane"]


class Peer:
    """A client that may do as it likes."""

    def __init__(self, port: int, hello: bytes = frames.PREFACE + frames.settings_frame({})) -> None:
        self._socket = socket.create_connection(("localhost", port), SOON)
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._read = self._socket.makefile("rb")
        self.send(hello)

    def send(self, *pieces: bytes) -> None:
        """All of it, unless the server has had enough."""
        with suppress(ConnectionError):
            self._socket.sendall(b"".join(pieces))

    def headers(
        self, number: int = 1, name: str = "PushPull", token: str = TOKEN, end: bool = False, **more: str
    ) -> bytes:
        """A call's first frame."""
        fields = {
            ":method": "POST",
            ":scheme": "http",
            ":path": f"/{SERVICE}/{name}",
            ":authority": "localhost",
            "te": "trailers",
            "content-type": "application/grpc",
            HEADER: held(Credentials(TOKEN)).shown() if token == TOKEN else bearer(token),
            **more,
        }
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frames.frame(Kind.HEADERS, flags, number, self._encoder.encode(list(fields.items())))

    def frames(self) -> Iterator[Frame]:
        """What the server says, to its end."""
        with suppress(ConnectionError):
            while len(raw := self._read.read(frames.HEADER_BYTES)) == frames.HEADER_BYTES:
                length, kind, flags, number = frames.parse_header(raw)
                payload = self._read.read(length)
                if kind == Kind.HEADERS:
                    payload = json.dumps(self._decoder.decode(payload)).encode()
                yield kind, flags, number, payload

    def next(self, kind: Kind, where: Callable[[Frame], bool] = lambda frame: True) -> Frame:
        """The next frame of a kind; StopIteration would be the connection's end."""
        return next(frame for frame in self.frames() if frame[0] == kind and where(frame))

    def goaway(self) -> Code:
        """Why the server ends the connection."""
        return Code(int.from_bytes(self.next(Kind.GOAWAY)[3][4:8], "big"))

    def reset(self, number: int = 1) -> Code:
        """Why the server ends a call without an answer."""
        return Code(int.from_bytes(self.next(Kind.RST_STREAM, lambda frame: frame[2] == number)[3], "big"))

    def trailers(self, number: int = 1) -> dict[str, str]:
        """A call's outcome."""
        ends = lambda frame: frame[2] == number and frame[1] & frames.END_STREAM  # noqa: E731
        return dict(json.loads(self.next(Kind.HEADERS, ends)[3]))

    def answers_a_ping(self) -> None:
        """The connection lives on."""
        self.send(frames.frame(Kind.PING, 0, 0, b"are you?"))
        assert self.next(Kind.PING, lambda frame: bool(frame[1] & frames.ACK))[3] == b"are you?"

    def ends_sending(self) -> None:
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._read.close()
        self._socket.close()

    def vanish(self) -> None:
        """Closes by a reset."""
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close()


def data(number: int, payload: bytes, end: bool = False, flags: int = 0) -> bytes:
    """A DATA frame."""
    return frames.frame(Kind.DATA, flags | (frames.END_STREAM if end else 0), number, payload)


def push(values: Any = VALUES, head: pb.PushHead | None = None) -> list[bytes]:
    """A push's messages with their prefixes."""
    first = pb.PushHead(worker="worker-0", elements=ELEMENTS) if head is None else head
    parts = encoded_parts(values, load_codec("none"), 4 * PART)
    return [bytes(start) + bytes(part) for start, part in cut(first.SerializeToString(), parts)]


def pull() -> bytes:
    """A pull's only message."""
    message = pb.PullRequest(reader="evaluator").SerializeToString()
    return len(message).to_bytes(5, "big") + message
