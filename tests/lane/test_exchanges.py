"""Sparse pushes, one after the other on a stream that stays open: who waits, what ends it, and what an idle one costs."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from paceline.core.errors import TryAgain
from paceline.rpc.lane import frames
from paceline.rpc.lane.frames import Code, Kind
from paceline.rpc.lane.grpc_texts import STATUS
from paceline.rpc.lane.messages import prefixed
from paceline.rpc.lane.stream import Stream
from paceline.rpc.lane.threads import Threads
from paceline.rpc.outages import Outage
from paceline.rpc.retries import retried
from paceline.rpc.transport import Transport
from paceline.rpc.watchdog import IDLE
from paceline.v1 import parameter_service_pb2 as pb
from tests.lane.test_lane import Serve, eventually, numbers, only_lane
from tests.support.fake_service import SOON, Gate, Served, Service, exchange
from tests.support.lane_peer import Lane, Peer, data

MESSAGE = prefixed(pb.PushPullSparseRequest(values=b"1234").SerializeToString())


@pytest.fixture
def lane() -> Iterator[Lane]:
    with closing(Lane()) as made:
        yield made


@pytest.fixture
def peer(lane: Lane) -> Iterator[Peer]:
    """Has had one answer on stream 1; afterwards a good client is served, and nothing is left."""
    found = Peer(lane.port)
    found.send(found.headers(name="ExchangeSparse"))
    answered(found, lane)
    yield found
    lane.serves()
    found.close()
    lane.is_quiet()


def answered(peer: Peer, lane: Lane) -> None:
    """An exchange on stream 1."""
    peer.send(data(1, MESSAGE))
    assert peer.next(Kind.DATA)[2] == 1
    assert lane.outcome() == ("ExchangeSparse", "OK")


def push(transport: Transport, clock: int = 1, values: bytes = b"1234", timeout: float = SOON) -> None:
    """A sparse push and its answer."""
    found = transport.push_sparse(pb.PushPullSparseRequest(head=pb.PushHead(clock=clock), values=values), timeout)
    assert (found.head.clock, found.values) == (clock, values)


def push_again(transport: Transport) -> None:
    """As a worker does: an answer comes before the thread that gave it is free for the next push, which is refused then."""
    retried(lambda: push(transport), SOON, Outage("the server", print), threading.Event())


def streams(served: Served, name: str = "opened_streams") -> float:
    """The lane's own count: of streams ever opened, or of those that are (`streams`)."""
    found = {metric.name: metric.samples[0].value for metric in served.lane.traffic.collect()}
    return found[f"paceline_lane_{name}"]


# one stream
def test_many_exchanges_are_each_answered_and_counted_and_take_one_stream_of_the_lane(serve: Serve) -> None:
    served = serve(Service(), token="the-right-secret-word")
    transport = served.transport()
    for clock in range(200):
        push(transport, clock)
    counted = {served.calls.get(timeout=SOON)[1] for _ in range(200)}
    assert counted == {"OK"}
    assert served.calls.empty()
    assert served.kind == "grpc" or streams(served) == 1


@pytest.mark.parametrize("length", [0, 1, 5000, 70_000, 3 << 20])
def test_values_of_any_length_go_there_and_back(serve: Serve, length: int) -> None:
    transport = serve(Service()).transport()
    for clock in range(8):  # more in all than a stream's window
        push(transport, clock, bytes(length))


def test_a_server_that_is_restarted_between_two_exchanges_is_found_again(serve: Serve) -> None:
    served = serve(Service())
    transport = served.transport()
    push(transport)
    served.stop()
    serve(Service(), port=served.port)
    assert len(eventually(transport, numbers(10))) == 10
    push(transport)


@only_lane
def test_exchanges_side_by_side_have_a_stream_each_and_one_is_kept(serve: Serve) -> None:
    service, gate = Service(), Gate()
    served = serve(service)
    transport = served.transport()
    service.at["sparse"] = gate
    with ThreadPoolExecutor(4) as threads:
        calls = [threads.submit(push, transport, clock) for clock in range(4)]
        for _ in calls:
            gate.wait()
        assert streams(served) == 4
        gate.opened.set()
        for call in calls:
            call.result()
    service.at.clear()
    for clock in range(20):
        push(transport, clock)
    assert streams(served) == 4
    assert streams(served, "streams") == 1


# many streams, few threads
@only_lane
def test_idle_streams_hold_no_thread(serve: Serve) -> None:
    served = serve(Service(), threads=2)
    transports = [served.transport() for _ in range(6)]
    for _ in range(3):
        for transport in transports:
            push(transport)
    assert streams(served, "streams") == len(transports)
    assert len(exchange(transports[0], numbers(10))) == 10


@only_lane
def test_an_exchange_that_finds_no_thread_is_put_off(serve: Serve) -> None:
    service, gate = Service(), Gate()
    served = serve(service, threads=1)
    first, second = served.transport(), served.transport()
    for transport in (first, second):
        push_again(transport)
        while served.calls.get(timeout=SOON)[1] != "OK":
            pass  # it was refused at first
    service.at["sparse"] = gate
    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(push_again, first)
        gate.wait()
        while not served.calls.empty():
            assert served.calls.get()[1] == "UNAVAILABLE"
        with pytest.raises(TryAgain, match="too many calls already"):
            push(second)
        assert served.calls.get(timeout=SOON)[1] == "UNAVAILABLE"
        gate.opened.set()
        held.result()
    push_again(second)


def test_a_server_that_drains_waits_for_no_idle_stream(serve: Serve) -> None:
    served = serve(Service())
    transport = served.transport()
    push(transport)
    stopper = threading.Thread(target=served.stop, args=(3600.0,))
    stopper.start()
    stopper.join(SOON)
    assert not stopper.is_alive()
    with pytest.raises(TryAgain):
        push(transport)


# peers that do as they like
def test_an_idle_stream_may_wait_for_long_and_is_answered_all_the_same(peer: Peer, lane: Lane) -> None:
    for _ in range(3):
        lane.passes(40 * IDLE)
        answered(peer, lane)


def test_a_caller_that_ends_an_idle_stream_is_told_that_all_is_well(peer: Peer, lane: Lane) -> None:
    peer.send(data(1, b"", end=True))
    assert peer.trailers()["grpc-status"] == "0"
    assert lane.outcomes() == []


def test_a_caller_that_resets_an_idle_stream_is_forgotten(peer: Peer, lane: Lane) -> None:
    peer.send(frames.reset(1, Code.CANCEL))
    peer.answers_a_ping()
    assert lane.outcomes() == []


@pytest.mark.parametrize("some", [1, 5, 8, len(MESSAGE) - 1])
def test_half_a_message_and_then_silence_ends_the_stream_by_a_status(peer: Peer, lane: Lane, some: int) -> None:
    peer.send(data(1, MESSAGE[:some]))
    peer.answers_a_ping()
    assert lane.outcome(step=IDLE + 1) == ("ExchangeSparse", "RESOURCE_EXHAUSTED")
    assert peer.trailers()["grpc-status"] == str(STATUS["RESOURCE_EXHAUSTED"])
    peer.answers_a_ping()


REFUSED = {
    "half a message and the end": data(1, MESSAGE[:-1], end=True),
    "a message that is absurdly long": data(1, b"\0\xff\xff\xff\xff" + MESSAGE),
    "a message that is compressed": data(1, b"\1" + MESSAGE[1:]),
    "a message that is no push": data(1, b"\0\0\0\0\3\x0a\x7fa"),
    "messages that wait for no answer": data(1, 1000 * MESSAGE),
}


@pytest.mark.parametrize("attack", REFUSED)
def test_what_is_no_exchange_ends_the_stream_by_a_status(peer: Peer, lane: Lane, attack: str) -> None:
    peer.send(REFUSED[attack])
    found = peer.trailers()
    assert found["grpc-status"] == str(STATUS["INVALID_ARGUMENT"])
    assert found["grpc-message"]
    peer.answers_a_ping()


def test_frames_without_data_wake_nobody(peer: Peer, lane: Lane) -> None:
    for _ in range(20):
        peer.send(data(1, b""))
    peer.answers_a_ping()
    lane.passes(40 * IDLE)
    answered(peer, lane)


def test_a_message_in_many_frames_is_one_exchange(peer: Peer, lane: Lane) -> None:
    for byte in MESSAGE:
        peer.send(data(1, bytes((byte,))))
    assert peer.next(Kind.DATA)[3] == prefixed(pb.PushPullSparseReply(values=b"1234").SerializeToString())
    assert lane.outcome() == ("ExchangeSparse", "OK")


# what ends at an awkward moment
class Interrupted:
    """A lock whose release lets another thread go first: `then` is what that does."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._then = then

    def acquire(self, blocking: bool = True) -> bool:
        return self._lock.acquire(blocking)

    def release(self) -> None:
        self._lock.release()
        self._then()


def test_a_message_that_comes_as_a_stream_begins_to_rest_is_handed_over_once() -> None:
    stream, handed = Stream(1, 0), list[str]()
    stream.attach(None)

    def come() -> None:
        stream.has_ended = True
        stream.wake()

    stream._lock = Interrupted(come)  # type: ignore[assignment]
    rests = stream.rest(lambda: handed.append("by the reader"))
    assert (rests, handed) == (True, ["by the reader"])


def test_a_stream_that_failed_before_anybody_waited_has_no_message() -> None:
    stream = Stream(1, 0)
    stream.fail(TryAgain("reset"))
    stream.attach(None)
    assert stream.message(0.0) is None


def test_a_thread_that_can_not_be_started_is_refused_and_counts_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, done = Threads(1), threading.Event()

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        assert [threads.run(lambda: None) for _ in range(3)] == [False] * 3
    assert threads.run(done.set)
    assert done.wait(SOON)
    threads.stop()


def test_a_thread_lives_on_after_a_bug(capfd: pytest.CaptureFixture[str]) -> None:
    threads, done = Threads(1), threading.Event()

    def fail() -> None:
        raise ValueError("a bug")

    assert threads.run(lambda: fail)
    deadline = time.monotonic() + SOON
    while not threads.run(done.set):
        assert time.monotonic() < deadline, "the thread is gone"
        time.sleep(0.001)
    assert done.wait(SOON)
    assert "a bug" in capfd.readouterr().err
    threads.stop()
