"""A worker's emulated network link (`faults: link worker-1=10Mbit,50ms,1%`): its pushes and pulls go out and come in piece by
piece, as slowly as they would on it, so that servers keep memory as they would then."""

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from paceline.core.fault import Fault, RunClock
from paceline.core.network_link import NetworkLink
from paceline.rpc.transport import OpenSink, Parts, Sink, Transport, in_pieces
from paceline.v1 import parameter_service_pb2 as pb

_LONGEST = 10.0
"""Longest wait for one piece (seconds): no end may take the stream for idle. What is left of it follows after the call."""


class EmulatedLink:
    """What one worker sends goes out one message after the other, and what it gets comes in one after the other, whichever
    server it is from. Thread-safe."""

    def __init__(
        self,
        faults: Sequence[Fault],
        pause: Callable[[float], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`faults`: of this worker; `pause`: waits for some seconds, or until the worker is to stop."""
        self._faults = [fault for fault in faults if not fault.signals]
        self._pause = pause
        self._clock = clock
        self._lock = threading.Lock()
        self._run = RunClock()
        self._free = {"out": 0.0, "in": 0.0}
        """When each direction is free again."""
        self._until = 0.0
        """When the last of the present waits is over."""
        self.waited = 0.0
        """Time in which something was on its way (seconds)."""

    def __bool__(self) -> bool:
        """Whether there is a link to emulate, now or later."""
        return bool(self._faults)

    def hear(self, seconds: float) -> None:
        """The run's training time, as the chief says."""
        with self._lock:
            self._run.hear(seconds, self._clock())

    def carry(self, way: str, size: int, is_first: bool = True, longest: float = math.inf) -> float:
        """Waits for a message of this size (bytes) on its way "out" or "in", for `longest` seconds at most. Returns when it has
        come, by the clock. `is_first`: it is not the next piece of a message, which follows the last one at once."""
        with self._lock:
            now = self._clock()
            links = [found for fault in self._faults if (found := fault.link_at(max(0.0, self._run.read(now))))]
            if not links:
                return now
            end = max(self._end(way, size, link, now if is_first else now - link.latency) for link in links)
            self.waited += max(0.0, end - max(now, self._until))
            self._until = max(end, self._until)
        self._pause(min(end - now, longest))
        return end

    def wait(self, end: float) -> None:
        """Waits until then, by the clock."""
        if (left := end - self._clock()) > 0:
            self._pause(left)

    def _end(self, way: str, size: int, link: NetworkLink, start: float) -> float:
        sent = self._free[way] = max(start, self._free[way]) + size / link.rate
        return sent + link.latency


class _Message:
    """One message of parts on its way over such a link."""

    def __init__(self, link: EmulatedLink, way: str) -> None:
        self._link = link
        self._way = way
        self._is_first = True
        self._end = 0.0

    def carry(self, size: int) -> None:
        """Waits for the next piece (bytes)."""
        self._end = self._link.carry(self._way, size, self._is_first, _LONGEST)
        self._is_first = False

    def end(self) -> None:
        """There are no more pieces; waits for the head where there were none."""
        if self._is_first:
            self.carry(0)

    def finish(self) -> None:
        """Waits for what is left."""
        self.end()
        self._link.wait(self._end)


class _Outgoing:
    """The parts of a push, each of which may go when the last one has. May be read again, for another attempt."""

    def __init__(self, link: EmulatedLink, head: pb.PushHead, parts: Parts) -> None:
        self._link = link
        self._codec = head.codec
        self._parts = parts
        self._message = _Message(link, "out")

    def __iter__(self) -> Iterator[tuple[int, memoryview]]:
        self._message = message = _Message(self._link, "out")
        for offset, data in in_pieces(self._codec, self._parts):
            message.carry(data.nbytes)
            yield offset, data
        message.end()

    def finish(self) -> None:
        """Waits for what has not been waited for."""
        self._message.finish()


class _Incoming:
    """Where weights go as they come over the link: until a part is taken, the server sends no more than a stream holds."""

    def __init__(self, link: EmulatedLink, open_sink: OpenSink) -> None:
        self._open = open_sink
        self._message = _Message(link, "in")
        self._sink: Sink | None = None

    def opened(self, head: pb.PullHead) -> Sink:
        self._sink = self._open(head)
        return self

    def buffer(self, offset: int, length: int) -> memoryview | None:
        assert self._sink is not None
        return self._sink.buffer(offset, length)

    def take(self, offset: int, data: memoryview) -> None:
        assert self._sink is not None
        self._message.carry(len(data))
        self._sink.take(offset, data)

    def finish(self) -> None:
        """Waits for what has not been waited for."""
        self._message.finish()


class LinkedTransport(Transport):
    """A way to one server over such a link."""

    def __init__(self, way: Transport, link: EmulatedLink) -> None:
        self._way = way
        self._link = link

    @property
    def silence(self) -> float:
        return self._way.silence

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        return self._way.resume(request, timeout)

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        outgoing = _Outgoing(self._link, head, parts)
        reply = self._way.initialise(head, outgoing, timeout)
        outgoing.finish()
        return reply

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        outgoing, incoming = _Outgoing(self._link, head, parts), _Incoming(self._link, open_sink)
        answer = self._way.push_pull(head, outgoing, incoming.opened, timeout)
        outgoing.finish()
        incoming.finish()
        return answer

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        outgoing = _Outgoing(self._link, head, parts)
        answer = self._way.push(head, outgoing, timeout)
        outgoing.finish()
        self._link.carry("in", 0)
        return answer

    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._weights(lambda sink: self._way.ask(request, sink, timeout), open_sink)

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        self._link.carry("out", request.ByteSize())
        answer = self._way.push_sparse(request, timeout)
        self._link.carry("in", answer.ByteSize())
        return answer

    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        self._link.carry("out", request.ByteSize())
        answer = self._way.ask_sparse(request, timeout)
        self._link.carry("in", answer.ByteSize())
        return answer

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._weights(lambda sink: self._way.pull(request, sink, timeout), open_sink)

    def _weights(self, send: Callable[[OpenSink], pb.PullHead], open_sink: OpenSink) -> pb.PullHead:
        """A small request, and the weights that it brings."""
        self._link.carry("out", 0)
        incoming = _Incoming(self._link, open_sink)
        answer = send(incoming.opened)
        incoming.finish()
        return answer
