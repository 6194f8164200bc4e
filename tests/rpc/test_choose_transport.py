"""The transport that a config names: with `lane` calls go there as soon as a reply by grpcio has told where it is."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from paceline.core.errors import BadPush, TryAgain
from paceline.rpc.auth import OPEN
from paceline.rpc.choose_transport import open_transport
from paceline.rpc.transport import IsThere, Outgoing, Transport
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.fake_service import SOON, Gathered, Served, Service

Call = Callable[[Transport], object]


class Told(Service):
    """Says in every reply where the lane is, as a server does."""

    lane_port = 0

    def resume(self, request: pb.ResumeRequest) -> pb.ResumeReply:
        return pb.ResumeReply(lane_port=self.lane_port)

    def push_sparse(self, request: pb.PushPullSparseRequest, is_there: IsThere) -> pb.PushPullSparseReply:
        reply = super().push_sparse(request, is_there)
        reply.head.lane_port = self.lane_port
        return reply

    @contextmanager
    def pull(self, request: pb.PullRequest, is_there: IsThere) -> Iterator[Outgoing]:
        with super().pull(request, is_there) as outgoing:
            outgoing.head.lane_port = self.lane_port
            yield outgoing


class Server:
    """A service on both planes, as a server of a run with `transport: lane` has it."""

    def __init__(self) -> None:
        self.service = Told()
        self.grpc = Served("grpc", self.service)
        self.lane = Served("lane", self.service)
        self.service.lane_port = self.lane.port

    def counts(self) -> tuple[int, int]:
        """Calls by grpcio and on the lane."""
        return self.grpc.calls.qsize(), self.lane.calls.qsize()

    def stop(self) -> None:
        self.grpc.stop()
        self.lane.stop()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.stop()


def pull(transport: Transport) -> object:
    return transport.pull(pb.PullRequest(version=9), lambda head: Gathered(), SOON)


def push_sparse(transport: Transport) -> object:
    return transport.push_sparse(pb.PushPullSparseRequest(head=pb.PushHead(clock=1)), SOON)


def resume(transport: Transport) -> object:
    return transport.resume(pb.ResumeRequest(), SOON)


@pytest.mark.parametrize("call", [pull, push_sparse, resume])
def test_after_the_first_reply_calls_go_to_the_lane(server: Server, call: Call) -> None:
    transport = open_transport("lane", server.grpc.address, OPEN)
    call(transport)
    assert server.counts() == (1, 0)
    pull(transport)
    pull(transport)
    assert server.counts() == (1, 2)


def test_with_grpc_nothing_goes_to_the_lane(server: Server) -> None:
    transport = open_transport("grpc", server.grpc.address, OPEN)
    resume(transport)
    pull(transport)
    assert server.counts() == (2, 0)


def test_after_a_failure_a_reader_finds_the_lane_at_its_new_port(server: Server) -> None:
    transport = open_transport("lane", server.grpc.address, OPEN)
    pull(transport)
    server.lane.stop()
    with pytest.raises(TryAgain):
        pull(transport)
    server.lane = Served("lane", server.service)
    server.service.lane_port = server.lane.port
    for _ in range(3):
        pull(transport)
    assert server.counts() == (2, 2)


def test_a_lane_that_nobody_reaches_leaves_grpcio(server: Server) -> None:
    transport = open_transport("lane", server.grpc.address, OPEN)
    server.lane.stop()
    for _ in range(2):
        pull(transport)
        with pytest.raises(TryAgain):
            pull(transport)
    assert server.counts() == (2, 0)


def test_a_worker_whose_lane_nobody_reaches_trains_by_grpcio_though_it_resumes_after_each_failure(
    server: Server,
) -> None:
    transport = open_transport("lane", server.grpc.address, OPEN)
    resume(transport)
    server.lane.stop()
    for _ in range(2):
        with pytest.raises(TryAgain):
            push_sparse(transport)
        resume(transport)
        push_sparse(transport)
    assert server.counts() == (5, 0)


def test_a_server_without_a_lane_is_served_by_grpcio(server: Server) -> None:
    server.service.lane_port = 0
    transport = open_transport("lane", server.grpc.address, OPEN)
    resume(transport)
    for _ in range(2):
        pull(transport)
    assert server.counts() == (3, 0)


def test_what_no_repeat_can_mend_stays_on_the_lane(server: Server) -> None:
    transport = open_transport("lane", server.grpc.address, OPEN)
    pull(transport)

    def refuse(is_there: IsThere) -> None:
        raise BadPush("poison")

    server.service.at["pull"] = refuse
    with pytest.raises(BadPush):
        pull(transport)
    del server.service.at["pull"]
    pull(transport)
    assert server.counts() == (1, 2)
