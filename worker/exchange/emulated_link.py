"""A worker's emulated network link (`faults: link worker-1=10Mbit,50ms,1%`): its pushes and pulls wait for as long as they
would take on it."""

import threading
import time
from collections.abc import Callable, Sequence

from paceline.core.fault import Fault, RunClock
from paceline.core.network_link import NetworkLink
from paceline.rpc.transport import OpenSink, Parts, Transport, weights_codec
from paceline.v1 import parameter_service_pb2 as pb


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

    def carry(self, way: str, size: int) -> None:
        """Waits for a message of this size (bytes) on its way "out" or "in"."""
        with self._lock:
            now = self._clock()
            links = [found for fault in self._faults if (found := fault.link_at(max(0.0, self._run.read(now))))]
            if not links:
                return
            end = max(self._end(way, size, link, now) for link in links)
            self.waited += max(0.0, end - max(now, self._until))
            self._until = max(end, self._until)
        self._pause(end - now)

    def _end(self, way: str, size: int, link: NetworkLink, now: float) -> float:
        sent = self._free[way] = max(now, self._free[way]) + size / link.rate
        return sent + link.latency


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
        parts = list(parts)
        self._link.carry("out", _size(parts))
        return self._way.initialise(head, parts, timeout)

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        parts = list(parts)
        self._link.carry("out", _size(parts))
        return self._came(self._way.push_pull(head, parts, open_sink, timeout))

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        parts = list(parts)
        self._link.carry("out", _size(parts))
        answer = self._way.push(head, parts, timeout)
        self._link.carry("in", 0)
        return answer

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        self._link.carry("out", request.ByteSize())
        answer = self._way.push_sparse(request, timeout)
        self._link.carry("in", answer.ByteSize())
        return answer

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        self._link.carry("out", 0)
        return self._came(self._way.pull(request, open_sink, timeout))

    def _came(self, head: pb.PullHead) -> pb.PullHead:
        self._link.carry("in", weights_codec(head.codec).most_bytes(head.elements) if head.elements else 0)
        return head


def _size(parts: Parts) -> int:
    return sum(part.nbytes for _, part in parts)
