"""The lane between a server and its workers, in one process: unless stated otherwise, it does what grpcio does."""

import itertools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core import errors
from paceline.core.errors import BadPush, Fenced, PacelineError, TryAgain, Unauthenticated, error_classes
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials
from paceline.rpc.lane import client as lane_client
from paceline.rpc.lane import connection
from paceline.rpc.lane.connection import STREAMS
from paceline.rpc.lane.stream import UNOPENED
from paceline.rpc.lane.writer import Writer
from paceline.rpc.outages import Outage
from paceline.rpc.retries import retried
from paceline.rpc.transport import IsThere, Parts, Transport
from paceline.rpc.wire import most_head
from paceline.v1 import parameter_service_pb2 as pb
from tests.support.fake_service import SOON, Gate, Gathered, Served, Service, client, exchange, parts
from tests.support.in_process import LENGTH, Cluster, Pusher, Said, config_of
from tests.support.ports import own_port
from tests.support.processes import eventually as happens

LARGE = 8 << 20
"""Elements of a push that is larger than all windows and buffers on its way."""
KINDS = sorted((kind for kind in error_classes().values() if kind.__module__ == errors.__name__), key=str)
Serve = Callable[..., Served]


only_lane = pytest.mark.parametrize("kind", ["lane"])


def numbers(count: int) -> Vector:
    return np.arange(count, dtype=np.float32)


def raising(error: Exception) -> Callable[[IsThere], None]:
    def refuse(is_there: IsThere) -> None:
        raise error

    return refuse


def sparse(transport: Transport, timeout: float = SOON) -> None:
    found = transport.push_sparse(pb.PushPullSparseRequest(values=b"1234"), timeout)
    assert found.values == b"1234"


def sparse_call(served: Served) -> str:
    return "ExchangeSparse" if served.kind == "lane" else "PushPullSparse"


def head_of(values: Vector) -> pb.PushHead:
    return pb.PushHead(worker="worker-0", clock=1, elements=len(values))


def eventually(transport: Transport, values: Vector) -> Vector:
    """The exchange, repeated as a worker does after a failure."""
    stop = threading.Event()
    return retried(lambda: exchange(transport, values), SOON, Outage("the server", Said()), stop)


# what comes across
@pytest.mark.parametrize("count", [0, 1, 5000, 1 << 18, (1 << 20) + 3])
def test_weights_of_any_length_go_there_and_back(serve: Serve, count: int) -> None:
    sent = numbers(count)
    np.testing.assert_array_equal(exchange(serve(Service()).transport(), sent), 2 * sent)


def test_the_limit_of_a_head_is_the_plans_on_each_transport(serve: Serve) -> None:
    service = Service()
    transport = serve(service).transport()
    head = pb.PushHead(worker="worker-0", clock=1, untouched=range(40_000))
    assert head.ByteSize() > UNOPENED, "more than the lane takes before it lets a call in"
    with pytest.raises(BadPush, match=r"head is 1\d\d,\d\d\d bytes long; expected at most 16,384 for this plan"):
        transport.push(head, (), SOON)
    service.most_head = most_head(40_000)
    assert transport.push(head, (), SOON).clock == 1


def test_every_call_is_answered(serve: Serve) -> None:
    service = Service()
    transport, values, sink = serve(service).transport(), numbers(1000), Gathered()
    resumed = transport.resume(pb.ResumeRequest(worker="worker-0", clock=4), SOON)
    first = transport.initialise(head_of(values), parts(values), SOON)
    pushed = transport.push(head_of(values), parts(values), SOON)
    sparse = transport.push_sparse(pb.PushPullSparseRequest(head=pb.PushHead(clock=2), values=b"1234"), SOON)
    pulled = transport.pull(pb.PullRequest(version=300), lambda head: sink, SOON)
    push, answer = pb.EarlierPush(clock=300), Gathered()
    asked = [
        transport.ask(pb.AskRequest(push=push, weights=wants), lambda head: answer, SOON) for wants in (False, True)
    ]
    asked_sparse = transport.ask_sparse(pb.AskSparseRequest(push=push, places=b"1234"), SOON)
    assert resumed == pb.ResumeReply(term=3, clock=4, phase="SLICE_PHASE_SERVING")
    assert first == pb.InitialiseReply(term=7)
    assert service.first.tolist() == values.tolist()
    assert pushed == pb.PullHead(clock=1, term=7)
    assert sparse == pb.PushPullSparseReply(head=pb.PullHead(clock=2), values=b"1234", all=True)
    assert pulled == pb.PullHead(version=300, elements=300)
    assert asked == [pb.PullHead(clock=300), pb.PullHead(clock=300, elements=300)]
    assert asked_sparse == pb.PushPullSparseReply(head=pb.PullHead(clock=300), places=b"1234")
    assert sink.values.tolist() == answer.values.tolist() == [300.0] * 300


def test_calls_side_by_side_get_each_its_own_answer_large_and_small(serve: Serve) -> None:
    transport = serve(Service(), threads=16).transport()
    sizes = [1 << 20, 1, 70_000, 0, 300_000, 5, 1 << 19, 20_000] * 4

    def one(place: int) -> bool:
        sent = numbers(sizes[place]) + place
        return bool((exchange(transport, sent, clock=place + 1) == 2 * sent).all())

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(one, range(len(sizes))))


def test_a_small_call_is_answered_while_a_large_one_waits(serve: Serve) -> None:
    service, gate = Service(), Gate()
    service.at["end"] = gate
    transport = serve(service).transport()
    with ThreadPoolExecutor(1) as threads:
        large = threads.submit(exchange, transport, numbers(LARGE // 8))
        gate.wait()
        assert transport.resume(pb.ResumeRequest(clock=9), SOON).clock == 9
        gate.opened.set()
        assert len(large.result()) == LARGE // 8


# errors
@pytest.mark.parametrize(
    "text", ["seen, expected, do this", "größer als 3 ≠ 4 %20 🙂\n\t»zweite Zeile«"], ids=["plain", "any letters"]
)
@pytest.mark.parametrize("error", KINDS, ids=lambda error: error.__name__)
def test_every_error_crosses_with_class_status_and_text(serve: Serve, error: type[PacelineError], text: str) -> None:
    service = Service()
    served = serve(service)
    transport = served.transport()
    service.at = dict.fromkeys(("resume", "pull", "end", "sparse", "ask"), raising(error(text)))
    calls: dict[str, Callable[[], object]] = {
        "Resume": lambda: transport.resume(pb.ResumeRequest(), SOON),
        "Pull": lambda: transport.pull(pb.PullRequest(), lambda head: Gathered(), SOON),
        "PushPull": lambda: exchange(transport, numbers(10)),
        "Ask": lambda: transport.ask(pb.AskRequest(), lambda head: Gathered(), SOON),
        "AskSparse": lambda: transport.ask_sparse(pb.AskSparseRequest(), SOON),
        sparse_call(served): lambda: sparse(transport),
    }
    for name, call in calls.items():
        with pytest.raises(PacelineError) as caught:
            call()
        assert (type(caught.value), str(caught.value)) == (error, text)
        assert served.calls.get(timeout=SOON) == (name, error.status)
    service.at.clear()
    sparse(transport)


@only_lane
@pytest.mark.parametrize("letter", ["x", "ß", "🙂"], ids=["ascii", "two bytes", "four bytes"])
def test_of_a_very_long_text_the_beginning_crosses(serve: Serve, letter: str) -> None:
    service = Service()
    service.at["resume"] = raising(Fenced("seen: " + 100_000 * letter))
    transport = serve(service).transport()
    with pytest.raises(Fenced) as caught:
        transport.resume(pb.ResumeRequest(), SOON)
    assert str(caught.value).startswith("seen: " + 300 * letter)
    assert set(str(caught.value)) == set("seen: " + letter)


def test_a_bug_in_the_server_is_named_and_the_connection_stays(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    service = Service()
    served = serve(service)
    transport = served.transport()
    service.at = dict.fromkeys(("end", "sparse"), raising(ZeroDivisionError("0/0")))
    calls = {"PushPull": lambda: exchange(transport, numbers(10)), sparse_call(served): lambda: sparse(transport)}
    for name, call in calls.items():
        with pytest.raises(PacelineError, match="A bug in the server: ZeroDivisionError: 0/0") as caught:
            call()
        assert type(caught.value) is PacelineError
        assert served.calls.get(timeout=SOON) == (name, "INTERNAL")
        assert "ZeroDivisionError" in capfd.readouterr().err
    service.at.clear()
    assert len(exchange(transport, numbers(10))) == 10
    sparse(transport)


def test_without_the_right_token_nothing_is_answered(serve: Serve) -> None:
    service = Service()
    served = serve(service, token="the-right-secret-word")
    assert len(exchange(served.transport(), numbers(10))) == 10
    assert served.calls.get(timeout=SOON) == ("PushPull", "OK")
    service.left.get(timeout=SOON)
    for token in ("", "another-random-word"):
        with pytest.raises(Unauthenticated):
            exchange(served.transport(token), numbers(10))
        with pytest.raises(Unauthenticated):
            sparse(served.transport(token))
        for name in ("PushPull", sparse_call(served)):
            assert served.calls.get(timeout=SOON) == (name, "UNAUTHENTICATED")
    assert service.left.empty()


@pytest.mark.parametrize("point", ["head", "part"])
def test_a_server_that_refuses_in_mid_push_is_heard_at_once(serve: Serve, point: str) -> None:
    service = Service()
    service.at[point] = raising(BadPush("this is poison"))
    transport, values, taken = serve(service).transport(), np.zeros(LARGE, np.float32), [0]

    def counted() -> Parts:
        for part in parts(values):
            taken[0] += 1
            yield part

    for call in (
        lambda: transport.push_pull(head_of(values), counted(), lambda head: Gathered(), SOON),
        lambda: transport.push(head_of(values), counted(), SOON),
        lambda: transport.initialise(head_of(values), counted(), SOON),
    ):
        taken[0] = 0
        with pytest.raises(BadPush, match="this is poison"):
            call()
        assert 0 < taken[0] < len(list(parts(values)))
    service.at.clear()
    assert len(exchange(transport, numbers(10))) == 10


# callers that do not wait forever
def gives_up(service: Service, point: str, call: Callable[[float], object]) -> int:
    """Calls with a deadline, while the server waits at the point for its caller to go; both have given up then. On a busy
    machine a short deadline may be over before the call is at the point: how many calls it took until one was."""
    reached, told = threading.Event(), threading.Event()

    def wait(is_there: IsThere) -> None:
        reached.set()
        service.until_gone(is_there)
        assert told.wait(SOON)

    service.at[point] = wait
    for calls, timeout in enumerate((0.3, 1.0, 4.0, SOON / 2), 1):
        told.clear()
        with pytest.raises(TryAgain, match="DEADLINE_EXCEEDED"):
            call(timeout)
        told.set()
        if reached.is_set():
            assert service.gone.wait(SOON)
            return calls
    raise AssertionError(f"no call has come to '{point}'")


WAITS: dict[str, tuple[str, Callable[[Transport, float], object]]] = {
    "pull": ("pull", lambda transport, timeout: pull(transport, timeout)),
    "sparse push": ("sparse", sparse),
    "held reply": ("end", lambda transport, timeout: exchange(transport, numbers(10), timeout=timeout)),
    "held reply to a large push": ("end", lambda to, timeout: exchange(to, numbers(1 << 20), timeout=timeout)),
    "push that waits for its buffer": ("head", lambda to, timeout: exchange(to, numbers(LARGE), timeout=timeout)),
}


def pull(transport: Transport, timeout: float) -> None:
    transport.pull(pb.PullRequest(version=1), lambda head: Gathered(), timeout)


@pytest.mark.parametrize("name", WAITS)
def test_after_the_deadline_neither_side_waits_any_more(serve: Serve, name: str) -> None:
    point, call = WAITS[name]
    service = Service()
    transport = serve(service).transport()
    exchange(transport, numbers(10))  # connects
    gives_up(service, point, lambda timeout: call(transport, timeout))
    service.at.clear()
    assert len(exchange(transport, numbers(10))) == 10


@pytest.mark.parametrize("refused_at", [0, 2], ids=["its head", "its second part"])
def test_a_caller_that_refuses_a_reply_is_sent_no_more(serve: Serve, refused_at: int) -> None:
    service, came = Service(), itertools.count()
    transport = serve(service).transport()

    def take() -> None:
        if next(came) == refused_at:
            raise TryAgain("answered from its past")

    with pytest.raises(TryAgain, match="answered from its past"):
        transport.pull(pb.PullRequest(version=LARGE), lambda head: take() or Gathered(take), SOON)
    assert service.left.get(timeout=SOON) == "pull"
    assert len(exchange(transport, numbers(10))) == 10


@only_lane
def test_a_caller_that_gives_up_in_mid_push_leaves_nothing_behind(serve: Serve) -> None:
    service = Service()
    served = serve(service)
    transport, values = served.transport(), numbers(1 << 20)

    def broken() -> Parts:
        yield from list(parts(values))[:-1]
        raise ValueError("no more parts")

    with pytest.raises(ValueError, match="no more parts"):
        transport.push_pull(head_of(values), broken(), lambda head: Gathered(), SOON)
    assert service.left.get(timeout=SOON) == "push"
    assert served.calls.get(timeout=SOON) == ("PushPull", "CANCELLED")
    assert len(exchange(transport, numbers(10))) == 10


# connections that end
def push(transport: Transport) -> None:
    exchange(transport, numbers(1 << 20))


@pytest.mark.parametrize(("point", "begin"), [("end", push), ("sparse", sparse)])
def test_a_connection_lost_in_mid_call_is_worth_another_try_and_made_anew(
    serve: Serve, point: str, begin: Callable[[Transport], None]
) -> None:
    service, reached = Service(), threading.Event()

    def wait(is_there: IsThere) -> None:
        reached.set()
        service.until_gone(is_there)

    served = serve(service)
    transport = served.transport()
    begin(transport)
    service.at[point] = wait
    with ThreadPoolExecutor(1) as threads:
        call = threads.submit(begin, transport)
        assert reached.wait(SOON)
        served.stop()
        with pytest.raises(TryAgain):
            call.result()
    assert service.gone.wait(SOON)
    serve(Service(), port=served.port)
    assert len(eventually(transport, numbers(10))) == 10


@only_lane
def test_a_connection_lost_at_its_first_bytes_is_made_anew(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    transport = serve(Service()).transport()
    with monkeypatch.context() as patch:
        patch.setattr(Writer, "send", lambda writer, buffers: raising(TryAgain("lost"))(lambda: True))
        with pytest.raises(TryAgain, match="lost"):
            exchange(transport, numbers(1))
    assert len(exchange(transport, numbers(10))) == 10


def test_nobody_there_is_worth_another_try(kind: str) -> None:
    with pytest.raises(TryAgain):
        exchange(client(kind, f"localhost:{own_port()}"), numbers(1))


@only_lane
def test_a_server_that_speaks_something_else_is_worth_another_try(serve: Serve) -> None:
    with socket.create_server(("localhost", 0)) as other, ThreadPoolExecutor(1) as threads:

        def answer() -> None:
            connection, _ = other.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

        answered = threads.submit(answer)
        with pytest.raises(TryAgain):
            exchange(client("lane", f"localhost:{other.getsockname()[1]}"), numbers(1))
        answered.result()


@only_lane
def test_a_whole_answer_is_one_though_the_connection_ends_before_anybody_looks(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, gate = Service(), Gate()
    service.at["end"] = gate
    served, send = serve(service), lane_client._send

    def send_and_look_late(connection: Any, stream: Any, messages: Any) -> None:
        send(connection, stream, messages)
        gate.wait()
        stopped = threads.submit(served.stop, SOON)
        gate.opened.set()
        stopped.result()
        while connection.why is None:
            time.sleep(0.001)

    monkeypatch.setattr(lane_client, "_send", send_and_look_late)
    with ThreadPoolExecutor(2) as threads:
        assert len(exchange(served.transport(), numbers(1000))) == 1000


@pytest.mark.parametrize(("point", "begin"), [("end", push), ("sparse", sparse)])
def test_a_server_that_drains_ends_what_it_has_begun_and_takes_nothing_new(
    serve: Serve, point: str, begin: Callable[[Transport], None]
) -> None:
    service, gate = Service(), Gate()
    served = serve(service)
    transport = served.transport()
    begin(transport)
    service.at[point] = gate
    with ThreadPoolExecutor(2) as threads:
        begun = threads.submit(begin, transport)
        gate.wait()
        stopped = threads.submit(served.stop, 3600.0)
        refused = None
        while refused is None:  # until the news has come
            try:
                transport.resume(pb.ResumeRequest(), SOON)
            except TryAgain as error:
                refused = error
        gate.opened.set()
        begun.result()
        stopped.result(SOON)


# many at once
def test_more_calls_than_threads_are_put_off_and_clog_nothing(serve: Serve) -> None:
    service, gate = Service(), Gate()
    service.at["end"] = gate
    transport = serve(service, threads=2).transport()
    with ThreadPoolExecutor(2) as threads:
        held = [threads.submit(exchange, transport, numbers(10)) for _ in range(2)]
        gate.wait()
        gate.wait()
        for _ in range(STREAMS + 1):
            with pytest.raises(TryAgain):
                transport.resume(pb.ResumeRequest(), SOON)
        gate.opened.set()
        assert [len(call.result()) for call in held] == [10, 10]
    assert len(eventually(transport, numbers(10))) == 10


# whole servers
@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    config = config_of("asp", workers=1, servers=2, epochs=100, transport="lane")
    made = Cluster(config, tmp_path, Credentials("the-run-secret-word"))
    yield made
    made.close()


def moved(cluster: Cluster, index: int) -> None:
    """Restarts a server; its lane's old port is another program's while the new one is chosen."""
    lane, port = cluster.servers[index].lane, cluster.servers[index].port
    cluster.servers[index].close(grace=0)
    with ExitStack() as taken:
        with suppress(OSError):  # another program has it already
            taken.enter_context(socket.create_server(("", lane.port), family=socket.AF_INET6, dualstack_ipv6=True))
        cluster.servers[index] = cluster.begin(index, port)


def test_a_worker_finds_the_lane_of_a_restarted_server_on_its_new_port(cluster: Cluster) -> None:
    cluster.evaluator_ready()
    pusher = Pusher(cluster).join().sit()
    pusher.push(1.0)
    moved(cluster, 1)
    assert [head.term for head in pusher.push(1.0)] == [1, 2]
    moved(cluster, 1)
    assert pusher.client.pull(pusher.model) == [2, 2]
    assert [head.term for head in pusher.push(1.0)] == [1, 3]
    assert on_the_lane(cluster) == 2


def test_first_weights_find_the_lane_of_a_restarted_server(cluster: Cluster) -> None:
    pusher = Pusher(cluster)
    joined = pusher.chief.join(False, 100, 10, "", 64)
    pusher.client.attach(joined.incarnation)
    moved(cluster, 1)
    pusher.client.initialise(np.ones(LENGTH, np.float32))
    pusher.client.pull(pusher.model)
    assert pusher.model.tolist() == [1.0] * LENGTH


def on_the_lane(cluster: Cluster) -> int:
    """Connections to the servers' lanes."""
    return sum(len(server.lane._connections) for server in cluster.servers if server.lane is not None)


def test_a_server_that_answers_no_ping_is_known_to_be_silent_while_a_call_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_LOOK", 0.05)
    with socket.create_server(("localhost", 0)) as mute, ThreadPoolExecutor(1) as threads:
        way = client("lane", f"localhost:{mute.getsockname()[1]}")
        assert way.silence == 0
        waits = threads.submit(exchange, way, numbers(10))
        try:
            happens(lambda: way.silence > 0)
        finally:
            mute.accept()[0].close()
        with pytest.raises(TryAgain):
            waits.result(SOON)
    assert way.silence == 0
