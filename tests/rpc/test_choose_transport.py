"""The transport that a config names: with `lane` calls go there as soon as a reply by grpcio has told where it is."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from paceline.core.errors import BadPush, NotYet, TryAgain
from paceline.rpc.auth import OPEN
from paceline.rpc.choose_transport import open_transport
from paceline.rpc.lane.client import LaneTransport
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


class Worker:
    """One end of a transport to that server. What it does later is done when the test says so."""

    def __init__(self, server: Server) -> None:
        self.notes: list[str] = []
        self.due: list[tuple[float, Callable[[], None]]] = []
        self.transport = open_transport(
            "lane",
            server.grpc.address,
            OPEN,
            None,
            self.notes.append,
            lambda pause, work: self.due.append((pause, work)),
        )

    def looks_again(self) -> float:
        """Does what is due; returns how long it would have waited (seconds)."""
        ((pause, work),) = self.due
        self.due = []
        work()
        return pause


def test_after_a_failure_a_reader_finds_the_lane_at_its_new_port(server: Server) -> None:
    worker = Worker(server)
    pull(worker.transport)
    server.lane.stop()
    server.lane = Served("lane", server.service)
    server.service.lane_port = server.lane.port
    for _ in range(3):
        pull(worker.transport)
    assert server.counts() == (2, 2)
    assert worker.notes == []


@pytest.mark.parametrize("call", [pull, push_sparse])
def test_a_lane_that_nobody_reaches_is_said_once_and_leaves_grpcio(server: Server, call: Call) -> None:
    worker = Worker(server)
    resume(worker.transport)
    server.lane.stop()
    for _ in range(5):
        call(worker.transport)
        resume(worker.transport)
    assert server.counts() == (11, 0)
    (said,) = worker.notes
    assert f"The lane at localhost:{server.lane.port} is out of reach" in said
    assert "Connection refused" in said


def test_a_lane_out_of_reach_is_tried_again_after_longer_and_longer_pauses_up_to_a_minute(server: Server) -> None:
    worker = Worker(server)
    resume(worker.transport)
    server.lane.stop()
    pull(worker.transport)
    assert [worker.looks_again() for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    pull(worker.transport)
    assert len(worker.notes) == 1


def test_a_lane_that_comes_back_is_used_again_and_said(server: Server) -> None:
    worker = Worker(server)
    resume(worker.transport)
    server.lane.stop()
    pull(worker.transport)
    server.lane = Served("lane", server.service, port=server.lane.port)
    worker.looks_again()
    pull(worker.transport)
    assert server.counts()[1] == 1
    assert (len(worker.notes), worker.notes[-1], worker.due) == (2, "", [])


def test_a_lane_whose_calls_fail_though_it_takes_connections_is_out_of_reach(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: object) -> None:
        raise TryAgain("The far side closed the connection.")

    monkeypatch.setattr(LaneTransport, "pull", lost)
    worker = Worker(server)
    resume(worker.transport)
    for _ in range(2):
        with pytest.raises(TryAgain):
            pull(worker.transport)
        pull(worker.transport)
    for _ in range(3):
        pull(worker.transport)
    assert server.counts() == (6, 0)
    assert len(worker.notes) == 1
    worker.looks_again()  # it takes a connection, and the next call fails again
    with pytest.raises(TryAgain):
        pull(worker.transport)
    pull(worker.transport)
    pull(worker.transport)
    assert [bool(note) for note in worker.notes] == [True, False, True]


def test_what_the_server_puts_off_says_nothing_against_the_lane(server: Server) -> None:
    worker = Worker(server)
    pull(worker.transport)

    def refuse(is_there: IsThere) -> None:
        raise NotYet("soon")

    server.service.at["pull"] = refuse
    for _ in range(5):
        with pytest.raises(NotYet):
            pull(worker.transport)
    del server.service.at["pull"]
    pull(worker.transport)
    assert server.counts() == (1, 6)
    assert worker.notes == []


def test_nobody_looks_for_the_lane_of_a_transport_that_is_gone(server: Server) -> None:
    worker = Worker(server)
    resume(worker.transport)
    server.lane.stop()
    pull(worker.transport)
    del worker.transport
    gc.collect()
    worker.looks_again()
    assert worker.due == []


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
