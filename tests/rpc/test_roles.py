"""Which role's token opens which call, on both transports, and for whose name."""

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import grpc
import pytest

from paceline.core.errors import PacelineError, PermissionDenied
from paceline.rpc.auth import HEADER, Credentials, held
from paceline.rpc.channel import call, open_channel
from paceline.rpc.roles import MAY, ROLES, Role
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import peer_service_pb2, run_service_pb2, script_service_pb2, shard_service_pb2
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.parameter_service_pb2_grpc import ParameterServiceStub
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from tests.support.in_process import Cluster, config_of
from tests.support.tree import ROOT

SECRET = "the-secret-of-this-run"
PARAMETERS = pb.DESCRIPTOR.services_by_name["ParameterService"]
RUN = run_service_pb2.DESCRIPTOR.services_by_name["RunService"]
PAGE = (ROOT / "docs/understand/protocol.md").read_text().partition("| call | worker |")
HEADINGS, _, *LINES = [
    line.strip("| ").split(" | ") for line in f"{PAGE[1]}{PAGE[2]}".partition("\n\n")[0].splitlines()
]
OPEN_TO = {
    name: {role: word.startswith("yes") for role, word in zip(HEADINGS[1:], words, strict=True)}
    for name, *words in LINES
}
"""What the page of the protocol says."""
CASES = [
    (transport, service.full_name, method.name)
    for transport, services in (("grpc", (PARAMETERS, RUN)), ("lane", (PARAMETERS,)))
    for service in services
    for method in service.methods
]


NOT_IN_THIS_RUN = {("Evaluate", "worker"), ("Stop", "worker"), ("Stop", "evaluator")}
"""Calls that the run decides on: it has an evaluator, and is no script's."""
OF_A_SCRIPT: dict[Role, str] = {
    "worker": "Join Seat LeaseBatches Heartbeat Validated Leave GoBack Evaluate Stop",
    "evaluator": "Evaluate Stop",
}
"""What the processes of a script's run ask the chief."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    config = config_of("asp", workers=2, servers=2, epochs=100, transport="lane")
    made = Cluster(config, tmp_path_factory.mktemp("run"), Credentials(SECRET))
    yield made
    made.close()


def shows(role: Role, name: str = "") -> Credentials:
    return Credentials(SECRET, role=role, name=name or role)


def test_the_matrix_has_a_line_for_each_call_and_a_column_for_each_role() -> None:
    messages = (pb, run_service_pb2, peer_service_pb2, script_service_pb2, shard_service_pb2)
    services = [service for each in messages for service in each.DESCRIPTOR.services_by_name.values()]
    calls = {method.name for service in services for method in service.methods}

    assert set(OPEN_TO) == calls == set(MAY)
    assert tuple(HEADINGS[1:]) == ROLES


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("method", MAY)
def test_a_role_opens_what_the_matrix_says(method: str, role: Role) -> None:
    assert (role == "admin" or role in MAY[method]) is OPEN_TO[method][role]


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("transport", "service", "method"), CASES)
def test_a_server_refuses_whom_the_matrix_refuses(
    cluster: Cluster, transport: str, service: str, method: str, role: Role
) -> None:
    lane = cluster.servers[0].lane
    address = cluster.addresses[0] if transport == "grpc" else f"localhost:{lane.port}"
    metadata = [(HEADER, held(shows(role, "*")).shown())]

    with grpc.insecure_channel(address) as channel:
        stream = channel.stream_stream(f"/{service}/{method}")(iter([b""]), metadata=metadata, timeout=10)
        try:
            next(stream, None)
            code = grpc.StatusCode.OK
        except grpc.RpcError as error:
            code = error.code()  # type: ignore[attr-defined]

    # what is let in finds nothing in the message
    is_open = OPEN_TO[method][role] and (method, role) not in NOT_IN_THIS_RUN
    assert (code is not grpc.StatusCode.PERMISSION_DENIED) is is_open, code


def test_all_that_the_processes_of_a_script_ask_the_chief_is_open_to_them(tmp_path: Path) -> None:
    asked = {call for file in (ROOT / "worker").rglob("*.py") for call in re.findall(r"_stub\.(\w+)", file.read_text())}
    assert asked & {method.name for method in RUN.methods} == {
        call for each in OF_A_SCRIPT.values() for call in each.split()
    }

    config = config_of("asp", workers=1, epochs=100, task="own.py", data={"source": "script"}, evaluate_every=0)
    cluster = Cluster(config, tmp_path, Credentials(SECRET))
    try:
        for role, calls in OF_A_SCRIPT.items():
            stub = RunServiceStub(open_channel(cluster.addresses[0], shows(role, "*")))
            for name in calls.split():
                request = getattr(run_pb, f"{name}Request")()
                try:
                    call(getattr(stub, name), request, 10.0)
                except PermissionDenied as error:
                    pytest.fail(f"{name} of {role}: {error}")
                except PacelineError:
                    pass  # it was let in, and the empty message refused
    finally:
        cluster.close()


OTHERS = {
    "Join": run_pb.JoinRequest(worker="worker-1"),
    "Seat": run_pb.SeatRequest(worker="worker-1"),
    "Heartbeat": run_pb.HeartbeatRequest(worker="worker-1"),
    "LeaseBatches": run_pb.LeaseBatchesRequest(worker="worker-1"),
    "Validated": run_pb.ValidatedRequest(worker="worker-1"),
    "Leave": run_pb.LeaveRequest(worker="worker-1"),
    "GoBack": run_pb.GoBackRequest(worker="worker-1"),
}


@pytest.mark.parametrize("method", OTHERS)
def test_a_worker_can_t_speak_for_another_one_to_the_chief(cluster: Cluster, method: str) -> None:
    stub = RunServiceStub(open_channel(cluster.addresses[0], shows("worker", "worker-0")))
    with pytest.raises(PermissionDenied, match=r"worker-0 \(worker\) can't speak for worker-1. Start each process"):
        call(getattr(stub, method), OTHERS[method], 10.0)


@pytest.mark.parametrize("transport", ["grpc", "lane"])
def test_a_worker_can_t_push_or_pull_for_another_one(cluster: Cluster, transport: str) -> None:
    lane = cluster.servers[0].lane
    address = cluster.addresses[0] if transport == "grpc" else f"localhost:{lane.port}"
    stub = ParameterServiceStub(open_channel(address, shows("worker", "worker-0")))
    head, earlier = pb.PushHead(worker="worker-1"), pb.EarlierPush(worker="worker-1")
    calls: list[tuple[Any, Any]] = [
        (stub.Resume, pb.ResumeRequest(worker="worker-1")),
        (stub.PushPullSparse, pb.PushPullSparseRequest(head=head)),
        (stub.AskSparse, pb.AskSparseRequest(push=earlier)),
        (stub.Push, iter([pb.PushRequest(head=head)])),
        (stub.Initialise, iter([pb.InitialiseRequest(head=head)])),
    ]
    for method, request in calls:
        with pytest.raises(PermissionDenied, match="can't speak for worker-1"):
            call(method, request, 10.0)
    for method, request in (
        (stub.PushPull, iter([pb.PushPullRequest(head=head)])),
        (stub.Pull, pb.PullRequest(reader="worker-1")),
        (stub.Ask, pb.AskRequest(push=earlier)),
    ):
        with pytest.raises(grpc.RpcError, match="can't speak for worker-1"):
            list(method(request, timeout=10.0))


def test_a_server_can_t_speak_for_another_one(cluster: Cluster) -> None:
    stub = RunServiceStub(open_channel(cluster.addresses[0], shows("server", "server-2")))
    for method, request in (
        (stub.FollowView, run_pb.FollowViewRequest(server=1)),
        (stub.ReportServer, run_pb.ReportServerRequest(server=1)),
    ):
        with pytest.raises(PermissionDenied, match="can't speak for server-1"):
            call(method, request, 10.0)


def test_a_worker_of_any_name_may_be_any_worker_but_no_server(cluster: Cluster) -> None:
    shown = shows("worker", "worker-*")
    stub = ParameterServiceStub(open_channel(cluster.addresses[0], shown))
    with pytest.raises(Exception, match="protocol"):  # it has come in
        call(stub.Resume, pb.ResumeRequest(worker="worker-7"), 10.0)
    with pytest.raises(PermissionDenied, match="can't speak for server-0"):
        call(stub.Resume, pb.ResumeRequest(worker="server-0"), 10.0)


def test_a_worker_s_score_is_refused_even_the_final_one(cluster: Cluster) -> None:
    stub = RunServiceStub(open_channel(cluster.addresses[0], shows("worker", "worker-0")))
    forged = run_pb.EvaluateRequest(score=run_pb.Score(epoch=100, metrics={"test_accuracy": 1.0}, final=True))
    with pytest.raises(PermissionDenied, match="scores come from the run's evaluator alone"):
        call(stub.Evaluate, forged, 10.0)
    status = call(
        RunServiceStub(open_channel(cluster.addresses[0], shows("reader"))).Status, run_pb.StatusRequest(), 10.0
    )
    assert not status.scores


def test_where_nobody_scores_a_worker_takes_the_model_but_measures_nothing(tmp_path: Path) -> None:
    config = config_of("asp", workers=1, epochs=100, task="own.py", data={"source": "script"}, evaluate_every=0)
    with closing(Cluster(config, tmp_path, Credentials(SECRET))) as cluster:
        stub = RunServiceStub(open_channel(cluster.addresses[0], shows("worker", "worker-0")))
        with pytest.raises(Exception, match="protocol"):  # it has come in
            call(stub.Evaluate, run_pb.EvaluateRequest(), 10.0)
        with pytest.raises(PermissionDenied, match="scores come from the run's evaluator alone"):
            call(stub.Evaluate, run_pb.EvaluateRequest(score=run_pb.Score(metrics={"test_accuracy": 1.0})), 10.0)
