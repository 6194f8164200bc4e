"""Others on the other end of the lane: stock grpcio and grpc-go, with nothing but generated stubs; and
h2spec, a conformance test of HTTP/2."""

import functools
import hashlib
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from paceline.core.errors import BadPush, PlanMismatch, TryAgain
from paceline.core.values import Vector
from paceline.rpc.auth import Credentials, held
from paceline.rpc.transport import IsThere
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.parameter_service_pb2_grpc import (
    ParameterServiceServicer,
    ParameterServiceStub,
    add_ParameterServiceServicer_to_server,
)
from tests.lane.test_lane import raising
from tests.support.fake_service import PART, SOON, Gathered, Served, Service, client, exchange
from tests.support.tree import ROOT
from tools import h2spec

COUNT = (3 << 20) + 7
"""Elements: 12 MB, many times a stock peer's windows and frames."""
HERE = Path(__file__).parent
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
Serve = Callable[..., Served]
SECRET = "the-right-secret-word"
SHOWN = held(Credentials(SECRET)).shown().removeprefix("Bearer ")
"""A token that it has signed."""


@pytest.fixture
def kind() -> str:
    """The transport that `serve` takes."""
    return "lane"


def numbers() -> Vector:
    return np.arange(COUNT, dtype=np.float32) % 7


# a stock grpcio client
def messages(values: Vector, kind: type[Any] = pb.PushPullRequest) -> Iterator[Any]:
    for start in range(0, len(values), PART):
        part = kind(offset=start, data=values[start : start + PART].tobytes())
        if not start:
            part.head.CopyFrom(pb.PushHead(worker="worker-0", clock=1, elements=len(values)))
        yield part


def weights(replies: Any) -> Vector:
    found = list(replies)
    values = np.frombuffer(b"".join(part.data for part in found), np.float32)
    assert len(values) == found[0].head.elements
    return values


def test_stock_grpcio_exchanges_megabytes_with_the_lane(serve: Serve) -> None:
    service = Service()
    served, sent = serve(service, token=SECRET), numbers()
    right = (("authorization", f"Bearer {SHOWN}"),)
    with grpc.insecure_channel(served.address) as channel:
        stub = ParameterServiceStub(channel)
        resumed = stub.Resume(pb.ResumeRequest(clock=5), timeout=SOON, metadata=right)
        first = stub.Initialise(messages(sent, pb.InitialiseRequest), timeout=SOON, metadata=right)
        exchanged = weights(stub.PushPull(messages(sent), timeout=SOON, metadata=right))
        pushed = stub.Push(messages(sent, pb.PushRequest), timeout=SOON, metadata=right)
        sparse = stub.PushPullSparse(pb.PushPullSparseRequest(values=b"1234"), timeout=SOON, metadata=right)
        pulled = weights(stub.Pull(pb.PullRequest(version=COUNT), timeout=SOON, metadata=right))
        push = pb.EarlierPush(clock=7)
        asked = weights(stub.Ask(pb.AskRequest(push=push, weights=True), timeout=SOON, metadata=right))
        asked_sparse = stub.AskSparse(pb.AskSparseRequest(push=push, places=b"1234"), timeout=SOON, metadata=right)
    assert (resumed.clock, first.term, pushed.head.clock, sparse.values) == (5, 7, 1, b"1234")
    np.testing.assert_array_equal(service.first, sent)
    np.testing.assert_array_equal(exchanged, 2 * sent)
    assert (asked.tolist(), asked_sparse.answer.places) == ([7.0] * 7, b"1234")
    assert len(pulled) == COUNT
    assert (pulled == np.float32(COUNT)).all()


def test_stock_grpcio_calls_go_side_by_side_on_one_connection(serve: Serve) -> None:
    served, sent = serve(Service()), numbers()[: COUNT // 4]
    with grpc.insecure_channel(served.address) as channel, ThreadPoolExecutor(6) as threads:
        stub = ParameterServiceStub(channel)
        calls = [threads.submit(lambda: weights(stub.PushPull(messages(sent), timeout=SOON))) for _ in range(6)]
        for call in calls:
            np.testing.assert_array_equal(call.result(), 2 * sent)


def test_stock_grpcio_exchanges_on_a_stream_that_stays_open(serve: Serve) -> None:
    service = Service()
    served = serve(service, token=SECRET)
    right = (("authorization", f"Bearer {SHOWN}"),)
    with grpc.insecure_channel(served.address) as channel:
        pushes: queue.SimpleQueue[pb.PushPullSparseRequest] = queue.SimpleQueue()
        answers = ParameterServiceStub(channel).ExchangeSparse(iter(pushes.get, None), timeout=SOON, metadata=right)
        for length in (0, 4, 70_000, 3 << 20, 3 << 20, 4):
            pushes.put(pb.PushPullSparseRequest(values=bytes(length)))
            assert next(answers).values == bytes(length)
        service.at["sparse"] = raising(BadPush("größer als 3"))
        pushes.put(pb.PushPullSparseRequest())
        assert refusal(lambda: next(answers)) == (grpc.StatusCode.INVALID_ARGUMENT, "größer als 3")
        reached = threading.Event()

        def wait(is_there: IsThere) -> None:
            reached.set()
            service.until_gone(is_there)

        service.at = {"sparse": wait}
        pushes = queue.SimpleQueue()  # the thread of the stream that has ended still waits at the other one
        answers = ParameterServiceStub(channel).ExchangeSparse(iter(pushes.get, None), timeout=SOON, metadata=right)
        pushes.put(pb.PushPullSparseRequest())
        assert reached.wait(SOON)
        answers.cancel()
        assert service.gone.wait(SOON)


def refusal(call: Callable[[], Any]) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    return error.code(), error.details()


def test_stock_grpcio_sees_the_status_and_text_of_every_refusal(serve: Serve) -> None:
    service = Service()
    served, sent = serve(service, token=SECRET), numbers()
    right = (("authorization", f"Bearer {SHOWN}"),)
    with grpc.insecure_channel(served.address) as channel:
        stub = ParameterServiceStub(channel)
        code, _ = refusal(lambda: stub.Resume(pb.ResumeRequest(), timeout=SOON))
        assert code is grpc.StatusCode.UNAUTHENTICATED
        service.at["resume"] = raising(PlanMismatch("größer als 3"))
        found = refusal(lambda: stub.Resume(pb.ResumeRequest(), timeout=SOON, metadata=right))
        assert found == (grpc.StatusCode.FAILED_PRECONDITION, "größer als 3")
        for point in ("head", "part", "end"):
            service.at = {point: raising(BadPush("poison"))}
            found = refusal(lambda: list(stub.PushPull(messages(sent), timeout=SOON, metadata=right)))
            assert found == (grpc.StatusCode.INVALID_ARGUMENT, "poison"), point
        service.at = {"resume": raising(PlanMismatch(100_000 * "é"))}
        code, text = refusal(lambda: stub.Resume(pb.ResumeRequest(), timeout=SOON, metadata=right))
        assert (code, text[:300]) == (grpc.StatusCode.FAILED_PRECONDITION, 300 * "é")
        unknown = channel.unary_unary("/paceline.v1.ParameterService/Fly", bytes, bytes)
        assert refusal(lambda: unknown(b"", timeout=SOON))[0] is grpc.StatusCode.UNIMPLEMENTED


def test_a_stock_grpcio_client_that_cancels_or_waits_too_long_is_waited_for_no_more(serve: Serve) -> None:
    service, reached, told = Service(), threading.Semaphore(0), threading.Event()

    def wait(is_there: IsThere) -> None:
        reached.release()
        service.until_gone(is_there)
        # the server, which keeps to the deadline too, is not to reset the call before the client has given up
        assert told.wait(SOON)

    served = serve(service)
    with grpc.insecure_channel(served.address) as channel:
        stub = ParameterServiceStub(channel)
        assert len(weights(stub.Pull(pb.PullRequest(version=9), timeout=SOON))) == 9  # connects
        service.at["pull"] = wait
        for timeout in (0.3, 1.0, 4.0, SOON / 2):  # a short one may be over before the server has the call
            told.clear()
            call = stub.Pull(pb.PullRequest(), timeout=timeout)
            assert refusal(functools.partial(list, call))[0] is grpc.StatusCode.DEADLINE_EXCEEDED
            told.set()
            if reached.acquire(blocking=False):
                break
        assert service.gone.wait(SOON)
        service.gone.clear()
        call = stub.Pull(pb.PullRequest(), timeout=SOON)
        assert reached.acquire(timeout=SOON)
        call.cancel()
        assert service.gone.wait(SOON)
        service.at.clear()
        assert len(weights(stub.Pull(pb.PullRequest(version=9), timeout=SOON))) == 9


# the lane's client at stock grpcio servers
def test_the_lanes_client_exchanges_megabytes_with_our_servicer_on_grpcio() -> None:
    served = Served("grpc", Service(), token=SECRET)
    transport, sent, sink = client("lane", served.address, Credentials(SECRET)), numbers(), Gathered()
    np.testing.assert_array_equal(exchange(transport, sent), 2 * sent)
    assert transport.pull(pb.PullRequest(version=COUNT), lambda head: sink, SOON).version == COUNT
    assert len(sink.values) == COUNT
    served.stop()
    with pytest.raises(TryAgain):
        exchange(transport, sent)


class Stock(ParameterServiceServicer):
    """A server of generated code alone: sends back what is pushed, in parts of another size."""

    def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.ResumeReply:
        context.abort(grpc.StatusCode.FAILED_PRECONDITION, "größer als 3")
        raise AssertionError

    def PushPull(self, request_iterator: Iterator[pb.PushPullRequest], context: Any) -> Iterator[pb.PushPullReply]:
        pushed = list(request_iterator)
        data = b"".join(part.data for part in pushed)
        for start in range(0, len(data), 40_000):
            part = pb.PushPullReply(offset=start // 4, data=data[start : start + 40_000])
            if not start:
                part.head.CopyFrom(pb.PullHead(clock=pushed[0].head.clock, term=7, elements=len(data) // 4))
            yield part


def test_the_lanes_client_exchanges_megabytes_with_a_server_of_generated_code() -> None:
    with ThreadPoolExecutor(2) as threads:
        server = grpc.server(threads)
        add_ParameterServiceServicer_to_server(Stock(), server)
        port = server.add_insecure_port("localhost:0")
        server.start()
        transport, sent = client("lane", f"localhost:{port}"), numbers()
        np.testing.assert_array_equal(exchange(transport, sent), sent)
        with pytest.raises(Exception, match="FAILED_PRECONDITION: größer als 3"):
            transport.resume(pb.ResumeRequest(), SOON)
        with pytest.raises(Exception, match="UNIMPLEMENTED"):
            transport.push_sparse(pb.PushPullSparseRequest(), SOON)
        server.stop(0).wait()


# grpc-go: it is compiled first, in a minute and a half of CPU time; by day stock grpcio stands for other implementations
@pytest.fixture(scope="session")
def go_client() -> Path:
    """The program, built once for each state of its sources and of the messages."""
    if GO is None:
        pytest.skip("There is no go here (looked on the PATH and in /usr/local/go).")
    source, protos = HERE / "grpc_go", ROOT / "protos"
    found = sorted([*source.iterdir(), *protos.rglob("*.proto")])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in found)).hexdigest()[:16]
    folder = Path(f"/tmp/paceline-grpc-go-{os.getuid()}") / digest
    program = folder / "client"
    if program.exists():
        return program
    making = folder.with_name(f"{digest}.{os.getpid()}")
    shutil.rmtree(making, ignore_errors=True)
    shutil.copytree(source, making)
    plugins = ["google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc"]
    fetched = subprocess.run([GO, "mod", "download"], cwd=making, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"The Go modules can't be fetched here: {fetched.stderr.strip()[-200:]}")
    subprocess.run([GO, "build", "-o", f"{making}/bin/", *plugins], cwd=making, check=True)
    names = [file.relative_to(protos).as_posix() for file in protos.rglob("*.proto")]
    options = [
        f"--{kind}_{option}"
        for kind in ("go", "go-grpc")
        for option in (
            f"out={making}",
            "opt=module=paceline/grpc_go",
            *(f"opt=M{name}=paceline/grpc_go/stubs" for name in names),
        )
    ]
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(protos), *options, *names]
    plugins_first = {**os.environ, "PATH": f"{making / 'bin'}:{os.environ['PATH']}"}
    subprocess.run(command, cwd=making, env=plugins_first, check=True)
    subprocess.run([GO, "build", "-o", "client", "."], cwd=making, check=True)
    try:
        making.rename(folder)
    except OSError:  # another process was quicker
        shutil.rmtree(making)
    return program


def printed(program: Path, served: Served, *more: Any) -> list[str]:
    """What it prints for Resume, PushPull and Pull."""
    command = [str(word) for word in (program, "-address", served.address, "-elements", COUNT, *more)]
    environment = os.environ | {"GOMAXPROCS": "2"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, env=environment)
    return done.stdout.splitlines()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_grpc_go_exchanges_megabytes_with_the_lane(go_client: Path, serve: Serve) -> None:
    served = serve(Service(), token=SECRET)
    assert printed(go_client, served, "-token", SHOWN) == [
        "Resume OK: 0 weights, sum 0",
        f"PushPull OK: {COUNT} weights, sum {2 * numbers().astype(np.float64).sum():.0f}",
        f"Pull OK: {COUNT} weights, sum {COUNT * float(np.float32(COUNT)):.0f}",
    ]
    assert [served.calls.get(timeout=SOON) for _ in range(3)] == [("Resume", "OK"), ("PushPull", "OK"), ("Pull", "OK")]


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_grpc_go_sees_why_it_is_refused(go_client: Path, serve: Serve) -> None:
    service = Service()
    served = serve(service, token=SECRET)
    codes = [line.partition(":")[0] for line in printed(go_client, served, "-token", "wrong")]
    assert codes == ["Resume Unauthenticated", "PushPull Unauthenticated", "Pull Unauthenticated"]
    service.at = {"resume": raising(PlanMismatch("größer als 3")), "part": raising(BadPush("poison"))}
    service.at["pull"] = service.until_gone
    lines = printed(go_client, served, "-token", SHOWN, "-patience", "2s")
    assert lines[:2] == ["Resume FailedPrecondition: größer als 3", "PushPull InvalidArgument: poison"]
    assert lines[2].startswith("Pull DeadlineExceeded")
    assert service.gone.wait(SOON)


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_grpc_go_without_a_token_is_served_where_none_is_asked_for(go_client: Path, serve: Serve) -> None:
    assert [line.partition(":")[0] for line in printed(go_client, serve(Service()))] == [
        "Resume OK",
        "PushPull OK",
        "Pull OK",
    ]


PRINTED = """
Failures:

Hypertext Transfer Protocol Version 2 (HTTP/2)
  4. HTTP Frames
    4.2. Frame Size
      × 1: {}
        -> The endpoint MUST
Finished in 2.4434 seconds
146 tests, 145 passed, 0 skipped, 1 failed
"""


@pytest.mark.skipif(shutil.which("h2spec") is None, reason="h2spec is not on PATH; tools/h2spec.py says how to get it")
def test_the_lane_passes_all_of_h2spec_but_the_exceptions_with_reasons() -> None:
    printed = h2spec.run("h2spec")
    assert "146 tests, " in printed
    assert h2spec.failures(printed) == []


def test_a_failure_that_is_no_exception_is_reported() -> None:
    assert h2spec.failures(PRINTED.format("Sends a thing: and another")) == ["Sends a thing: and another"]
    for title in h2spec.EXCEPTIONS:
        assert h2spec.failures(PRINTED.format(title)) == []


def test_without_h2spec_the_tool_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert h2spec.main() == 2
    assert "go install github.com/summerwind/h2spec" in capsys.readouterr().err
