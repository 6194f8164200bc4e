"""Messages of a run without servers on their way: out by a line to each other worker, in by a delivery; and what a worker tells
Prometheus about them."""

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge

from paceline.core import kernels
from paceline.core.codecs.codec import Bytes, Codec
from paceline.core.errors import BadPush
from paceline.core.peers.peer_policy import Kind, Message
from paceline.core.peers.topology import SEATS
from paceline.core.slice.plan import Range
from paceline.core.values import Vector
from paceline.rpc.enums import value_of
from paceline.rpc.transport import Outgoing, room_for, weights_codec
from paceline.v1 import parameter_service_pb2 as pb
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.peers.peer_server import PeerLine
from paceline.worker.surroundings import rank_of


def member_id(worker: str, incarnation: int) -> int:
    """The number of a worker's process: who comes back is another member."""
    return incarnation * SEATS + rank_of(worker)


class Line:
    """Sends messages to one other worker, in order, from its own thread, which ends with the line."""

    def __init__(
        self,
        peer: PeerLine,
        deliver: Callable[["Line", Message, int], None],
        on_room: Callable[[], None],
        on_error: Callable[[Exception], None],
    ) -> None:
        self.peer = peer
        self.closed = threading.Event()
        self._deliver = deliver
        self._on_room = on_room
        self._on_error = on_error
        self._waiting: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self._scratch: Bytes = np.empty(0, np.uint8)
        threading.Thread(target=self._work, name="peer-line", daemon=True).start()

    @property
    def waiting(self) -> int:
        return self._waiting.qsize()

    def scratch(self, codec: Codec, part_bytes: int, length: int) -> Bytes | None:
        """Where a vector of that length is encoded to, if it must be: the place of the last one."""
        if codec.lossless:
            return None
        if len(self._scratch) < (room := room_for(codec, part_bytes, length)):
            self._scratch = np.empty(room, np.uint8)
        return self._scratch

    def put(self, message: Message) -> None:
        self._waiting.put(message)

    def close(self) -> None:
        """What still waits is not sent."""
        self.closed.set()
        self._waiting.put(None)

    def _work(self) -> None:
        number = 0
        while (message := self._waiting.get()) is not None and not self.closed.is_set():
            number += 1
            try:
                self._deliver(self, message, number)
            except Exception as error:  # also a bug: the step must not wait forever
                self._on_error(error)
                break
            del message  # its values may be used again
            self._on_room()
        self.peer.close()


class Delivery:
    """A message on its way in."""

    def __init__(self, head: pb.PushHead, values: Vector, take: Callable[[pb.PushHead, Vector], None]) -> None:
        self._head = head
        self._values = values
        self._take = take
        self._floats = head.elements // 2 if head.note.sparse else head.elements
        """Behind them are places."""
        self._sink = SliceSink(values, (Range(0, head.elements),), weights_codec(head.codec))

    def buffer(self, offset: int, length: int) -> memoryview | None:
        return self._sink.buffer(offset, length)

    def take(self, offset: int, data: memoryview) -> None:
        self._sink.take(offset, data)
        if not kernels.all_finite(self._values[offset : min(self._sink.filled, self._floats)]):
            raise BadPush(f"{self._head.worker} sent NaN or infinity. Nothing was changed.")

    @contextmanager
    def finish(self, wants_weights: bool) -> Iterator[Outgoing]:
        if self._sink.filled != self._head.elements:
            raise BadPush(
                f"{self._head.worker} sent {self._sink.filled:,} of {self._head.elements:,} values. Send all of them."
            )
        self._take(self._head, self._values)
        yield Outgoing(pb.PullHead(outcome=pb.OUTCOME_FOLDED), iter(()))


def kind_of(note: pb.PeerNote) -> Kind:
    """Returns what a message brings; a kind that is none of core's is for the policy to refuse."""
    return cast(Kind, value_of(note, "kind"))


def message_of(head: pb.PushHead, to: int, values: Vector, total: int) -> Message:
    """What has come, checked."""
    note, places = head.note, None
    if note.sparse:
        values, places = values[: len(values) // 2], values[len(values) // 2 :].view(np.uint32).astype(np.int64)
        if len(places) != len(values) or (len(places) and (places[-1] >= total or (np.diff(places) <= 0).any())):
            raise BadPush(f"{head.worker} sent positions that are not in rising order, or are beyond {total:,}.")
    sender = member_id(head.worker, head.incarnation)
    return Message(kind_of(note), sender, to, note.view, note.round, values, note.weight, note.hop, places)


class PeerMetrics:
    """The metrics of one process. Thread-safe."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        """`registry`: where Prometheus finds them; None: nobody asks."""
        registry = registry or CollectorRegistry()
        self.members = Gauge(
            "paceline_worker_members", "Members of the newest view that this worker knows", registry=registry
        )
        self.waiting = Gauge(
            "paceline_worker_queue_depth", "Messages that wait to be taken by other workers", registry=registry
        )
        self.sent = Counter(
            "paceline_worker_peer_sent_bytes_total", "Bytes of values that other workers have taken", registry=registry
        )
        self.received = Counter(
            "paceline_worker_peer_received_bytes_total", "Bytes of values taken from other workers", registry=registry
        )
        self.retries = Counter(
            "paceline_worker_peer_retries_total",
            "Messages to other workers that failed and were sent again",
            registry=registry,
        )
