"""A process of another release learns so from the first message that it sends, before it trains."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from paceline.core.errors import BadPush, OtherProtocol, PermissionDenied
from paceline.rpc.auth import OPEN
from paceline.rpc.channel import call
from paceline.rpc.protocol_version import PROTOCOL, check_protocol
from paceline.server import follower, server
from paceline.server.command_line import ToldServer
from paceline.server.own_figures import ServerStart
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1 import run_service_pb2 as run_pb
from paceline.v1.parameter_service_pb2_grpc import ParameterServiceStub
from paceline.v1.run_service_pb2_grpc import RunServiceStub
from tests.support.in_process import Cluster, config_of, join_request

FIRST: dict[str, tuple[str, Callable[[int], Any]]] = {
    "Join": ("worker-0", lambda number: join_request(config_of(servers=2), "worker-0", protocol=number)),
    "Resume": ("worker-0", lambda number: pb.ResumeRequest(worker="worker-0", incarnation=1, protocol=number)),
    "FollowView": ("server 1", lambda number: run_pb.FollowViewRequest(server=1, term=1, protocol=number)),
    "Evaluate": ("the evaluator", lambda number: run_pb.EvaluateRequest(protocol=number)),
}
"""First messages: who sends them, and how one that names a protocol is made."""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(config_of(servers=2, transport="grpc"), tmp_path_factory.mktemp("cluster"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def stubs(cluster: Cluster) -> Iterator[list[Any]]:
    with grpc.insecure_channel(cluster.addresses[0]) as channel:
        yield [RunServiceStub(channel), ParameterServiceStub(channel)]


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize(
    ("number", "said", "newer"),
    [
        (PROTOCOL + 1, f"protocol {PROTOCOL + 1}", "{who}"),
        (0, "a protocol without a number, older than 1", "{mine}"),
    ],
)
def test_a_process_of_another_release_is_refused_with_both_numbers(
    stubs: list[Any], name: str, number: int, said: str, newer: str
) -> None:
    (who, made), mine = FIRST[name], "server 0" if name == "Resume" else "the chief"
    method = next(getattr(stub, name) for stub in stubs if hasattr(stub, name))
    with pytest.raises(OtherProtocol) as refused:
        call(method, made(number), 10.0)
    best = newer.format(who=who, mine=mine)
    assert str(refused.value).endswith(
        f"{who} speaks {said}, {mine} protocol {PROTOCOL}: they are of different releases of Paceline, which can't train "
        f"together. Install the same release for all processes of the run, preferably that of {best}, which is newer."
    )
    assert refused.value.exit_code == 78


def test_nobody_of_another_release_is_counted(cluster: Cluster, stubs: list[Any]) -> None:
    chief = cluster.servers[0].chief
    assert chief is not None
    assert (chief.membership.places, cluster.servers[0].driver.plan) == ({}, None)


def test_the_same_protocol_says_nothing() -> None:
    check_protocol(PROTOCOL, "worker-0", "the chief")


def test_a_server_of_another_release_ends_instead_of_asking_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PROTOCOL", PROTOCOL + 1)
    driver, say, known = cluster.servers[1].driver, lambda event, **facts: None, cluster.servers[1]._follower
    assert known is not None
    told = ServerStart(1), known._figures
    one = follower.Follower(driver, known._versions, cluster.addresses[0], OPEN, say, *told)
    one.start()
    one._thread.join(30)
    assert f"server 1 speaks protocol {PROTOCOL + 1}, the chief protocol {PROTOCOL}:" in str(one.refusal)
    assert cluster.servers[1].refusal is None


@pytest.mark.parametrize(
    "error", [PermissionDenied("of another run"), BadPush("There is no server 1"), ValueError("odd")]
)
def test_a_server_that_the_chief_refuses_or_that_cannot_take_a_view_ends(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise error

    served, known = cluster.servers[1], cluster.servers[1]._follower
    assert known is not None
    monkeypatch.setattr(follower, "call", fails)
    said: list[str] = []
    told = ServerStart(1), known._figures
    one = follower.Follower(
        served.driver, known._versions, cluster.addresses[0], OPEN, lambda event, **facts: said.append(event), *told
    )
    one.start()
    one._thread.join(30)
    assert (one.refusal or served.driver.failure) is error
    assert not said
    served.driver.failure = None


def test_the_process_of_such_a_server_ends_with_the_same_words(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PROTOCOL", PROTOCOL + 1)
    monkeypatch.setattr(server, "stop_on_signals", lambda: (threading.Event(), []))
    monkeypatch.setattr(server, "tune_malloc", lambda kept: True)
    told = ToldServer(index=1, folder=tmp_path / "one", chief=cluster.addresses[0])
    with pytest.raises(OtherProtocol, match=f"server 1 speaks protocol {PROTOCOL + 1}"):
        server.serve(cluster.config, told)
