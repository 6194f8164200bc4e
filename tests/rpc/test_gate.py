"""What stands before every call: the token, the status of errors, and the watchdog of streams."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from paceline.core.errors import BadPush, ConfigError, TryAgain, Unauthenticated
from paceline.rpc.auth import OPEN, Credentials, authentication, held
from paceline.rpc.channel import call, open_channel
from paceline.rpc.grpc_plane import SERVICE, GrpcServicer
from paceline.rpc.host import Health, bind, make_server
from paceline.rpc.watchdog import IDLE, PROGRESS, Watchdog
from paceline.rpc.wire import frame, most_head
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.run_service_pb2_grpc import RunServiceServicer, RunServiceStub, add_RunServiceServicer_to_server
from tests.support.own_time import Clock

SERVICES = [pb.DESCRIPTOR.services_by_name["ParameterService"], run_pb.DESCRIPTOR.services_by_name["RunService"]]
METHODS = [f"/{service.full_name}/{method.name}" for service in SERVICES for method in service.methods]
RIGHT = "the-right-secret-word"
REFLECTION = f"/{reflection.SERVICE_NAME}/ServerReflectionInfo"


class Served:
    """A server with both services and reflection on a free port; what the handlers do is handed in."""

    def __init__(self, token: str, run: RunServiceServicer, service: Any, watchdog: Watchdog) -> None:
        self.calls: list[tuple[str, str]] = []
        self._server = make_server(
            4, authentication(Credentials(token)), lambda method, code, took: self.calls.append((method, code))
        )
        add_RunServiceServicer_to_server(run, self._server)
        GrpcServicer(service, watchdog).add_to(self._server)
        reflection.enable_server_reflection([SERVICE, reflection.SERVICE_NAME], self._server)
        self.address = f"localhost:{bind(self._server, 0, 'gRPC')}"
        self._server.start()

    def close(self) -> None:
        self._server.stop(0)


Serve = Callable[..., Served]


@pytest.fixture
def serve() -> Iterator[Serve]:
    started: list[Served] = []

    def start(token: str = "", run: RunServiceServicer | None = None, service: Any = None) -> Served:
        started.append(Served(token, run or RunServiceServicer(), service, Watchdog()))
        return started[-1]

    yield start
    for one in started:
        one.close()


def outcome(address: str, method: str, metadata: list[tuple[str, str]]) -> grpc.StatusCode:
    with grpc.insecure_channel(address) as channel:
        stream = channel.stream_stream(method)(iter([b""]), metadata=metadata, timeout=10)
        try:
            next(stream, None)
        except grpc.RpcError as error:
            return error.code()  # type: ignore[attr-defined, no-any-return]
        return grpc.StatusCode.OK


@pytest.mark.parametrize("method", [*METHODS, REFLECTION])
@pytest.mark.parametrize("credentials", [None, "", "Bearer wrong", RIGHT, f"Bearer {RIGHT}", "Bearer ey.a.b"])
def test_no_call_is_answered_without_the_token(serve: Serve, method: str, credentials: str | None) -> None:
    metadata = [] if credentials is None else [("authorization", credentials)]
    assert outcome(serve(RIGHT).address, method, metadata) is grpc.StatusCode.UNAUTHENTICATED


def test_the_right_token_is_let_through(serve: Serve) -> None:
    served = serve(RIGHT)
    metadata = [("authorization", held(Credentials(RIGHT)).shown())]
    assert outcome(served.address, REFLECTION, metadata) is grpc.StatusCode.OK


def test_health_answers_without_a_token() -> None:
    health = Health(0)
    health.serving(True)
    with grpc.insecure_channel(f"localhost:{health.port}") as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=10)
    health.stop()
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


def test_credentials_of_any_text_are_refused_without_a_crash() -> None:
    for text in ("Bearer \u00e9", "\x00", "Bearer " + "x" * 100_000):
        with pytest.raises(Unauthenticated):
            authentication(Credentials(RIGHT)).check(text, "Status")


def test_a_server_that_is_not_there_is_worth_another_try() -> None:
    with pytest.raises(TryAgain, match="UNAVAILABLE"):
        call(RunServiceStub(open_channel("localhost:1")).Status, run_pb.StatusRequest(), 5.0)


def test_a_port_in_use_is_refused_with_the_fix(serve: Serve) -> None:
    taken = int(serve().address.rpartition(":")[2])
    with pytest.raises(ConfigError, match="in use"):
        bind(make_server(1, authentication(OPEN), lambda *facts: None), taken, "gRPC")


class Stream:
    """One direction of a stream under watch, in virtual time: each message takes the far side that number of seconds."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.cancelled = False
        self.watchdog = Watchdog(self.clock)

    def cancel(self) -> None:
        self.cancelled = True

    def passes(self, seconds: float) -> None:
        self.clock.now += seconds
        self.watchdog.look()

    def far(self, times: list[float]) -> Iterator[float]:
        for seconds in times:
            self.passes(seconds)
            yield seconds


def test_a_sender_that_pauses_too_long_is_cancelled() -> None:
    stream = Stream()
    messages = stream.watchdog.receiving(stream.far([IDLE, IDLE, IDLE + 1]), stream.cancel)
    assert (next(messages), next(messages), stream.cancelled) == (IDLE, IDLE, False)
    next(messages)
    assert stream.cancelled


def test_time_that_we_take_for_a_message_is_not_the_senders() -> None:
    stream = Stream()
    for _ in stream.watchdog.receiving(stream.far([1.0] * 5), stream.cancel):
        stream.passes(3 * IDLE)
    assert not stream.cancelled


def test_a_sender_that_trickles_is_cancelled_however_often_it_sends() -> None:
    stream = Stream()
    drops = (b"x" for _ in stream.far([1.0] * 31))
    came = sum(not stream.cancelled for _ in stream.watchdog.receiving(drops, stream.cancel))
    assert came == IDLE


def test_a_sender_that_is_slow_but_moves_may_take_as_long_as_it_likes() -> None:
    stream = Stream()
    parts = (b"x" * (PROGRESS // 2) for _ in stream.far([IDLE / 2] * 10_000))
    for _ in stream.watchdog.receiving(parts, stream.cancel):
        pass
    assert not stream.cancelled


def test_a_receiver_that_takes_nothing_is_cancelled() -> None:
    stream = Stream()
    frames = stream.watchdog.sending(iter(["a", "b"]), stream.cancel)
    next(frames)
    stream.passes(IDLE)
    assert not stream.cancelled
    stream.passes(1)
    assert stream.cancelled


def test_a_stream_that_has_ended_is_watched_no_more() -> None:
    stream = Stream()
    list(stream.watchdog.receiving(iter(["a"]), stream.cancel))
    abandoned = stream.watchdog.sending(iter(["a", "b"]), stream.cancel)
    next(abandoned)
    del abandoned
    stream.passes(100 * IDLE)
    assert not stream.cancelled


class Uploads:
    """A service that takes pushes and notes how they end."""

    most_head = most_head(0)

    def __init__(self) -> None:
        self.ended = threading.Event()
        self.begun = threading.Event()

    @contextmanager
    def push(self, head: pb.PushHead, is_there: Callable[[], bool]) -> Iterator[Any]:
        self.begun.set()
        try:
            yield self
        finally:
            self.ended.set()

    def take(self, offset: int, data: memoryview) -> None:
        raise BadPush("not expected to come this far")


def test_a_half_open_upload_is_cancelled_and_its_thread_is_free() -> None:
    clock, service = Clock(), Uploads()
    watchdog = Watchdog(clock)
    served = Served("", RunServiceServicer(), service, watchdog)
    never = threading.Event()

    def half() -> Iterator[bytes]:
        yield frame(pb.PushHead(worker="worker-0").SerializeToString(), 0, b"")
        never.wait(60)

    with grpc.insecure_channel(served.address) as channel:
        answers = channel.stream_stream(f"/{SERVICE}/PushPull")(half(), timeout=60)
        assert service.begun.wait(10)
        while not service.ended.wait(0.01):
            clock.now += IDLE + 1
            watchdog.look()
        with pytest.raises(grpc.RpcError):
            next(answers)
        never.set()
    served.close()


class Beats(RunServiceServicer):
    def Heartbeat(self, request: run_pb.HeartbeatRequest, context: Any) -> run_pb.HeartbeatReply:
        return run_pb.HeartbeatReply(view=request.clock)


def test_a_service_that_is_apart_has_threads_that_no_other_call_takes() -> None:
    service, never = Uploads(), threading.Event()
    server = make_server(1, authentication(OPEN), lambda *facts: None, apart=["paceline.v1.RunService"])
    add_RunServiceServicer_to_server(Beats(), server)
    GrpcServicer(service, Watchdog()).add_to(server)
    address = f"localhost:{bind(server, 0, 'gRPC')}"
    server.start()

    def half() -> Iterator[bytes]:
        yield frame(pb.PushHead(worker="worker-0").SerializeToString(), 0, b"")
        never.wait(60)

    with grpc.insecure_channel(address) as channel:
        push = channel.stream_stream(f"/{SERVICE}/PushPull")(half(), timeout=60)
        assert service.begun.wait(10), "it holds the only thread of its pool"
        beat = call(RunServiceStub(open_channel(address)).Heartbeat, run_pb.HeartbeatRequest(clock=7), 60.0)
        assert beat.view == 7
        push.cancel()
        never.set()
    server.stop(0).wait()
