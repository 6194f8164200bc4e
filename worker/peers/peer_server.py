"""A worker's own model for others to read (PeerService): the server in the worker, and the reader's side."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Protocol, Self

import grpc
from google.protobuf.message import Message

from paceline.core.codecs.codec import load_codec
from paceline.core.errors import BadPush, Stopped, TryAgain
from paceline.core.slice.plan import Range, SlicePlan
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import Moving, giving, received, sent, taking
from paceline.rpc.host import bind, make_server
from paceline.rpc.lane.client import LaneClient, whole
from paceline.rpc.lane.messages import cut
from paceline.rpc.lane.server import LaneServer
from paceline.rpc.listening import LOOPBACK
from paceline.rpc.shares import Shares
from paceline.rpc.transport import IsThere, OpenSink, Outgoing, Parts, Upload, encoded_parts, weights_codec
from paceline.rpc.watchdog import Watchdog
from paceline.rpc.wire import most_head
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import peer_service_pb2 as peer_pb
from paceline.worker.exchange.received_weights import SliceSink
from paceline.worker.training.training_state import LocalModel

SERVICE = "paceline.v1.PeerService"
_PULL_LOCAL, _DELIVER, _WELCOME = (f"/{SERVICE}/{name}" for name in ("PullLocal", "Deliver", "Welcome"))
_READERS = 2
"""Calls at one time, and so the most copies of the model there are."""
_LONGEST_WAIT = 1.0
"""Longest wait (seconds) for the end of a step before the reply asks the reader to try again."""
_ANSWER = 10.0
"""A peer that is silent for this long beyond that is gone (seconds)."""


class Training(Protocol):
    """The part of a worker that others' messages go to, in a run without servers (worker/peers/other_workers.py)."""

    def taking(self, head: pb.PushHead, is_there: IsThere) -> AbstractContextManager[Upload]: ...

    def welcoming(self, request: peer_pb.WelcomeRequest, is_there: IsThere) -> AbstractContextManager[Outgoing]: ...


class PeerServer:
    """Serves a worker's LocalModel, and what others send to its policy; costs a port and a waiting thread while nobody asks.
    ConfigError: the port is taken."""

    def __init__(
        self,
        plan: SlicePlan,
        part_bytes: int,
        credentials: Credentials,
        port: int,
        transport: str,
        training: Training | None = None,
        senders: int = 0,
        host: str = LOOPBACK,
    ) -> None:
        """`training`: what `senders` others send to, at the same time; `host`: where it listens."""
        self.model = LocalModel()
        self._plan = plan
        self._part_bytes = part_bytes
        most = partial(most_head, len(plan.shapes))
        shown, threads = authentication(credentials), _READERS + senders
        shares = Shares(readers=_READERS - 1)  # the other one is the evaluator's, or a worker's
        self._watchdog = watchdog = Watchdog()
        if transport == "lane":
            routes = {_PULL_LOCAL: lambda call: call.download(peer_pb.PullLocalRequest, self._pull)}
            if training is not None:
                routes[_DELIVER] = lambda call: call.upload(
                    training.taking, most, False, lambda outgoing: peer_pb.DeliverReply(head=outgoing.head)
                )
                routes[_WELCOME] = lambda call: call.download(peer_pb.WelcomeRequest, training.welcoming)
            lane = LaneServer(routes, threads, shown, _uncounted, watchdog, port, credentials.tls, "peer", host, shares)
            lane.start()
            self.port = lane.port
            self._stop: Callable[[], object] = lambda: lane.stop(0)
        else:
            plane = make_server(threads, shown, _uncounted, shares)
            handlers = {"PullLocal": giving(self._pull, peer_pb.PullLocalRequest, watchdog)}
            if training is not None:
                handlers |= {
                    "Deliver": taking(training.taking, most, peer_pb.DeliverReply, watchdog),
                    "Welcome": giving(training.welcoming, peer_pb.WelcomeRequest, watchdog),
                }
            plane.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
            self.port = bind(plane, port, "peer", credentials.tls, host)
            plane.start()
            self._stop = lambda: plane.stop(0).wait()
        watchdog.start()

    def close(self) -> None:
        """Ends all calls."""
        self._stop()
        self._watchdog.stop()

    @contextmanager
    def _pull(self, request: peer_pb.PullLocalRequest, is_there: IsThere) -> Iterator[Outgoing]:
        self._plan.check(request.plan_hash, request.reader)
        codec = weights_codec(request.codec)
        values = self.model.read(_LONGEST_WAIT)
        if values is None:
            yield Outgoing(pb.PullHead(outcome=pb.OUTCOME_WAIT), iter(()))
            return
        head = pb.PullHead(outcome=pb.OUTCOME_FOLDED, codec=codec.name, elements=len(values))
        yield Outgoing(head, encoded_parts(values, codec, self._part_bytes))


def pull_local(
    address: str,
    credentials: Credentials,
    transport: str,
    plan: SlicePlan,
    reader: str,
    target: Vector,
    patience: float,
    stop: threading.Event,
) -> None:
    """Receives a worker's local model into `target`, as soon as its current step is over. Raises TryAgain if there is no answer
    or the step takes longer than `patience` (seconds), Stopped, or the worker's error."""
    request = peer_pb.PullLocalRequest(reader=reader, plan_hash=plan.hash, codec="none")
    deadline, timeout = time.monotonic() + patience, _LONGEST_WAIT + _ANSWER
    sink = SliceSink(target, (Range(0, plan.total),), load_codec("none"))

    def opened(head: pb.PullHead) -> SliceSink:
        if head.elements not in (0, plan.total):
            raise BadPush(f"The worker at {address} announces {head.elements:,} weights, expected {plan.total:,}.")
        return sink

    with PeerLine(address, credentials, transport) as line:
        while line.pull_local(request, opened, timeout).outcome == pb.OUTCOME_WAIT:
            if stop.is_set():
                raise Stopped("The process got a signal to stop.")
            if time.monotonic() > deadline:
                raise TryAgain(f"The worker at {address} did not finish its step within {patience:.0f} s.")
    if sink.filled != plan.total:
        raise TryAgain(f"The worker at {address} sent {sink.filled:,} of {plan.total:,} weights.")


class PeerLine:
    """Another worker's PeerService, by the run's transport; a context that ends its connection."""

    def __init__(self, address: str, credentials: Credentials, transport: str) -> None:
        self._way: LaneClient | grpc.Channel = (
            LaneClient(address, credentials) if transport == "lane" else open_channel(address, credentials)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def silence(self) -> float:
        """As that of a Transport."""
        return self._way.silence if isinstance(self._way, LaneClient) else 0.0

    def close(self) -> None:
        """Ends its calls."""
        self._way.close()

    def pull_local(self, request: peer_pb.PullLocalRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """PeerService.PullLocal."""
        return self._weights(_PULL_LOCAL, request, open_sink, timeout)

    def welcome(self, request: peer_pb.WelcomeRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        """PeerService.Welcome."""
        return self._weights(_WELCOME, request, open_sink, timeout)

    def deliver(self, head: pb.PushHead, parts: Parts, timeout: float) -> None:
        """PeerService.Deliver."""
        if isinstance(self._way, LaneClient):
            self._way.one(_DELIVER, cut(head.SerializeToString(), parts), peer_pb.DeliverReply, timeout)
        else:
            deliver = self._way.stream_unary(_DELIVER, None, peer_pb.DeliverReply.FromString)
            sent(deliver, head, parts, timeout)

    def _weights(self, path: str, request: Message, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        if isinstance(self._way, LaneClient):
            return self._way.weights(path, whole(request), open_sink, timeout)
        pull = self._way.unary_stream(path, type(request).SerializeToString, None)
        return received(pull(request), open_sink, Moving(timeout))


def _uncounted(method: str, status: str, seconds: float) -> None:
    """Does nothing: readers are few, and their calls are not counted."""
