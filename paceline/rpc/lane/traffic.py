"""What the lane's connections carry, counted for Prometheus: bytes, parts, streams, stalls, and calls that were ended early."""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from paceline.rpc.lane.frames import Code

_TEXTS = {
    "sent_bytes": "Bytes of data that calls have sent, their messages' framing included",
    "received_bytes": "Bytes of data that calls have received, their messages' framing included",
    "sent_parts": "Messages with a part of the weights or of a push that calls have sent",
    "received_parts": "Messages with a part of the weights or of a push that calls have received",
    "stalls": "Times that a sender waited for room in a window",
    "stalled_seconds": "Time that senders waited for room in a window",
}
_RESETS = (Code.CANCEL, Code.REFUSED_STREAM)
_CUT_OFFS = (Code.ENHANCE_YOUR_CALM, Code.PROTOCOL_ERROR)
"""Why, mostly: a series that begins at 0 shows its first one."""
Reasons = dict[tuple[str, str], int]
"""(direction, name of the code) -> how often."""


@dataclass(slots=True, eq=False)
class Counts:
    """One call's. Plain additions lose none, since each number has one writer at a time: its sender, or (received) its
    reader, parts with the stream's lock held."""

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_parts: int = 0
    received_parts: int = 0
    stalls: int = 0
    stalled_seconds: float = 0.0
    stalled_at: int = -1
    """Bytes that had been sent when the last stall began."""
    on_end: "Callable[[Counts], None]" = lambda counts: None

    def wait(self, room: threading.Condition, most: float) -> None:
        """The sender, with `room` held: waits for it, at most so long (seconds)."""
        if self.stalled_at != self.sent_bytes:  # not the same stall still
            self.stalls += 1
            self.stalled_at = self.sent_bytes
        begun = time.monotonic()
        room.wait(most)
        self.stalled_seconds += time.monotonic() - begun

    def end(self) -> None:
        """The call is over; may be said twice."""
        self.on_end(self)

    def add(self, other: "Counts") -> None:
        """What another call has counted."""
        self.sent_bytes += other.sent_bytes
        self.received_bytes += other.received_bytes
        self.sent_parts += other.sent_parts
        self.received_parts += other.received_parts
        self.stalls += other.stalls
        self.stalled_seconds += other.stalled_seconds


class Traffic(Collector):
    """All connections of one end: those of a server, or of a worker to all servers. Thread-safe. A registry that it is given
    to asks it for the `paceline_lane_*` metrics."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections = self._opened = 0
        self._open: set[Counts] = set()
        self._ended = Counts()
        """The sum of the calls that are over."""
        self._resets: Reasons = dict.fromkeys(product(("sent", "received"), (code.name for code in _RESETS)), 0)
        self._cut_offs: Reasons = dict.fromkeys(product(("sent", "received"), (code.name for code in _CUT_OFFS)), 0)

    def connected(self, more: int = 1) -> None:
        """A connection has begun, or (-1) ended."""
        with self._lock:
            self._connections += more

    def call(self) -> Counts:
        """A call begins; `Counts.end` says that it is over."""
        counts = Counts(on_end=self._end)
        with self._lock:
            self._opened += 1
            self._open.add(counts)
        return counts

    def reset(self, direction: str, code: int) -> None:
        """A stream was ended early by us (sent) or by the far side (received)."""
        self._note(self._resets, direction, code)

    def cut_off(self, direction: str, code: int) -> None:
        """A connection was ended by GOAWAY; with NO_ERROR it is none, but lets its calls end."""
        if code != Code.NO_ERROR:
            self._note(self._cut_offs, direction, code)

    def collect(self) -> Iterator[Metric]:
        """All metrics."""
        with self._lock:
            total = Counts()
            for counts in (self._ended, *self._open):
                total.add(counts)
            streams, opened, connections = len(self._open), self._opened, self._connections
            resets, cut_offs = dict(self._resets), dict(self._cut_offs)
        for name, text in _TEXTS.items():
            yield CounterMetricFamily(f"paceline_lane_{name}", text, getattr(total, name))
        yield CounterMetricFamily("paceline_lane_opened_streams", "Calls that have begun", opened)
        yield GaugeMetricFamily("paceline_lane_streams", "Calls that are under way", streams)
        yield GaugeMetricFamily("paceline_lane_connections", "Connections that are open", connections)
        yield _by_reason("resets", "Calls that either side has ended early", resets)
        yield _by_reason("cut_offs", "Connections that either side has cut off", cut_offs)

    def _end(self, counts: Counts) -> None:
        with self._lock:
            if counts in self._open:
                self._open.remove(counts)
                self._ended.add(counts)

    def _note(self, reasons: Reasons, direction: str, code: int) -> None:
        name = Code(code).name if code in list(Code) else "other"  # nothing of the far side's becomes a label
        with self._lock:
            reasons[direction, name] = reasons.get((direction, name), 0) + 1


def _by_reason(name: str, text: str, reasons: Reasons) -> CounterMetricFamily:
    family = CounterMetricFamily(f"paceline_lane_{name}", text, labels=("direction", "code"))
    for labels, count in reasons.items():
        family.add_metric(labels, count)
    return family
