"""The transport that the config names."""

from collections.abc import Callable

from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import GrpcTransport
from paceline.rpc.lane.client import LaneTransport
from paceline.rpc.transport import OpenSink, Parts, Transport
from paceline.v1 import parameter_service_pb2 as pb


def open_transport(kind: str, address: str, token: str) -> Transport:
    """A worker's way to one server; `kind` as in `config.transport`."""
    grpc = GrpcTransport(open_channel(address, token))
    if kind == "grpc":
        return grpc
    host = address.rpartition(":")[0]
    return _OnLane(grpc, lambda port: LaneTransport(f"{host}:{port}", token))


class _OnLane(Transport):
    """By grpcio until Resume has told where the server's lane is, then there."""

    def __init__(self, grpc: Transport, lane: Callable[[int], LaneTransport]) -> None:
        self._grpc, self._make_lane = grpc, lane
        self._port = 0
        self._data: Transport = grpc

    def resume(self, request: pb.ResumeRequest, timeout: float) -> pb.ResumeReply:
        reply = self._grpc.resume(request, timeout)
        if reply.lane_port != self._port:
            self._port = reply.lane_port
            if isinstance(self._data, LaneTransport):
                self._data.close()
            self._data = self._make_lane(self._port) if self._port else self._grpc
        return reply

    def initialise(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.InitialiseReply:
        return self._data.initialise(head, parts, timeout)

    def push_pull(self, head: pb.PushHead, parts: Parts, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._data.push_pull(head, parts, open_sink, timeout)

    def push(self, head: pb.PushHead, parts: Parts, timeout: float) -> pb.PullHead:
        return self._data.push(head, parts, timeout)

    def push_sparse(self, request: pb.SparsePush, timeout: float) -> pb.SparsePull:
        return self._data.push_sparse(request, timeout)

    def pull(self, request: pb.PullRequest, open_sink: OpenSink, timeout: float) -> pb.PullHead:
        return self._data.pull(request, open_sink, timeout)
