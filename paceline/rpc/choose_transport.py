"""The transport that the config names."""

import threading
import weakref
from collections.abc import Callable
from typing import TypeVar

from paceline.core.errors import TryAgain
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport, Unreachable
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.transport import OpenSink, Parts, Transport
from paceline.v1 import parameter_service_pb2 as pb

T = TypeVar("T")
_FIRST, _LAST = 1.0, 60.0
"""Time until a lane that is out of reach is tried again, which doubles, at first and at last (seconds)."""
_MISSES = 2
"""Calls in a row that fail on the lane, while those by grpcio between them do not, after which it counts as out of reach."""
Later = Callable[[float, Callable[[], None]], None]


def _later(seconds: float, work: Callable[[], None]) -> None:
    timer = threading.Timer(seconds, work)
    timer.daemon = True
    timer.start()


def open_transport(
    kind: str,
    address: str,
    credentials: Credentials,
    traffic: Traffic | None = None,
    note: Callable[[str], None] = lambda text: None,
    later: Later = _later,
) -> Transport:
    """A worker's way to one server; `kind` as in `config.transport`, `traffic` counts what the lane carries. `note`: receives
    why the lane is not used, and '' when it is again; `later`: does some work after that many seconds."""
    grpc = GrpcTransport(open_channel(address, credentials))
    if kind == "grpc":
        return grpc
    host = address.rpartition(":")[0]
    return _OnLane(grpc, lambda port: LaneTransport(f"{host}:{port}", credentials, traffic), note, later)


class _OnLane(Transport):
    """By grpcio until a reply there has told where the server's lane is, then there; after a failure by grpcio again, since
    the server may have come back elsewhere. Where grpcio works and the lane does not, calls stay there, and the lane is tried
    again in the background."""

    def __init__(
        self, grpc: Transport, make_lane: Callable[[int], LaneTransport], note: Callable[[str], None], later: Later
    ) -> None:
        self._grpc = grpc
        self._make_lane = make_lane
        self._note = note
        self._later = later
        self._port = 0
        self._lane: LaneTransport | None = None
        self._is_sure = self._is_away = False
        """Whether the next call uses the lane; whether the lane is out of reach."""
        self._misses = 0
        self._why = ""
        """Calls on the lane that have failed since the last good one, and why the last one did."""

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        reply = self._grpc.resume(request, timeout)
        # the same port: what failed uses grpcio once, since the lane alone may be out of reach
        if reply.lane_port != self._port:
            self._learn(reply.lane_port)
        return reply

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        return self._call(lambda way: way.initialise(head, parts, timeout), lambda reply: None)

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._call(lambda way: way.push_pull(head, parts, open_sink, timeout), lambda found: found)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        return self._call(lambda way: way.push(head, parts, timeout), lambda found: found)

    def ask(self, request: pb.AskRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._call(lambda way: way.ask(request, open_sink, timeout), lambda found: found)

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        return self._call(lambda way: way.push_sparse(request, timeout), lambda reply: reply.head)

    def ask_sparse(self, request: pb.AskSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        return self._call(lambda way: way.ask_sparse(request, timeout), lambda reply: reply.head)

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._call(lambda way: way.pull(request, open_sink, timeout), lambda found: found)

    @property
    def silence(self) -> float:
        lane = self._lane
        return 0.0 if lane is None else lane.silence

    def _call(self, send: Callable[[Transport], T], head_of: Callable[[T], pb.PullHead | None]) -> T:
        if self._lane is not None and self._is_sure:
            try:
                reply = send(self._lane)
                self._misses = 0
                return reply
            except Unreachable as error:  # nothing was sent: grpcio may
                self._missed(error, _MISSES)
            except TryAgain as error:
                if type(error) is TryAgain:  # others are what the server has answered
                    self._missed(error, self._misses + 1)
                raise
        reply = send(self._grpc)
        if (head := head_of(reply)) is not None and head.lane_port:
            self._learn(head.lane_port)
        return reply

    def _missed(self, error: TryAgain, misses: int) -> None:
        self._is_sure = False
        self._misses = misses
        self._why = str(error)

    def _learn(self, port: int) -> None:
        """The server answers over grpcio, and names the port of its lane."""
        if port != self._port:
            self._leave_lane()
        if port and self._lane is None:
            self._lane = self._make_lane(port)
        self._port = port
        if self._is_away:
            return
        if self._lane is not None and self._misses >= _MISSES:
            self._goes_away(self._lane)
        else:
            self._is_sure = port > 0

    def _leave_lane(self) -> None:
        if self._lane is not None:
            self._lane.close()
            self._lane = None
        if self._is_away:
            self._note("")
        self._is_away = False
        self._misses = 0

    def _goes_away(self, lane: LaneTransport) -> None:
        self._is_away = True
        self._note(
            f"The lane at {lane.address} is out of reach ({self._why.rstrip('.')}), so pushes and pulls use grpcio, which is "
            "slower. The port is tried again each minute. Open it between the machines, or set transport=grpc."
        )
        self._look_later(lane, _FIRST)

    def _look_later(self, lane: LaneTransport, pause: float) -> None:
        mine = weakref.WeakMethod(self._look)  # nobody waits for a lane that is not used any more
        self._later(pause, lambda: None if (look := mine()) is None else look(lane, pause))

    def _look(self, lane: LaneTransport, pause: float) -> None:
        """Uses the lane again where it answers; in a thread by itself."""
        if lane is not self._lane:
            return
        try:
            lane.greet()
        except TryAgain:
            self._look_later(lane, min(2 * pause, _LAST))
            return
        if lane is not self._lane:
            return
        self._note("")
        self._misses = _MISSES - 1  # a connection is no call yet: one that fails is enough
        self._is_away = False
        self._is_sure = True
