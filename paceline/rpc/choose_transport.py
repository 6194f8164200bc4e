"""The transport that the config names."""

from collections.abc import Callable
from typing import TypeVar

from paceline.core.errors import TryAgain
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.lane.traffic import Traffic
from paceline.rpc.transport import OpenSink, Parts, Transport
from paceline.v1 import parameter_service_pb2 as pb

T = TypeVar("T")


def open_transport(kind: str, address: str, credentials: Credentials, traffic: Traffic | None = None) -> Transport:
    """A worker's way to one server; `kind` as in `config.transport`, `traffic` counts what the lane carries."""
    grpc = GrpcTransport(open_channel(address, credentials))
    if kind == "grpc":
        return grpc
    host = address.rpartition(":")[0]
    return _OnLane(grpc, lambda port: LaneTransport(f"{host}:{port}", credentials, traffic))


class _OnLane(Transport):
    """By grpcio until a reply there has told where the server's lane is, then there; after a failure by grpcio again, since
    the server may have come back elsewhere."""

    def __init__(self, grpc: Transport, make_lane: Callable[[int], LaneTransport]) -> None:
        self._grpc = grpc
        self._make_lane = make_lane
        self._port = 0
        self._is_sure = False
        self._lane: LaneTransport | None = None

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

    def push_sparse(self, request: pb.PushPullSparseRequest, timeout: float) -> pb.PushPullSparseReply:
        return self._call(lambda way: way.push_sparse(request, timeout), lambda reply: reply.head)

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._call(lambda way: way.pull(request, open_sink, timeout), lambda found: found)

    def _call(self, send: Callable[[Transport], T], head_of: Callable[[T], pb.PullHead | None]) -> T:
        if self._lane is not None and self._is_sure:
            try:
                return send(self._lane)
            except TryAgain:
                self._is_sure = False
                raise
        reply = send(self._grpc)
        if (head := head_of(reply)) is not None and head.lane_port:
            self._learn(head.lane_port)
        return reply

    def _learn(self, port: int) -> None:
        if port != self._port and self._lane is not None:
            self._lane.close()
            self._lane = None
        if port and self._lane is None:
            self._lane = self._make_lane(port)
        self._port = port
        self._is_sure = port > 0
