"""What all processes of a run have alike: the protocol, or one of another release learns so from the first message that it
sends; and the settings, leaf by leaf, so that a difference is named by its own name."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from paceline.core.errors import BadPush, OtherProtocol, PermissionDenied
from paceline.core.settings.config import Config, Options
from paceline.rpc.agreed_settings import agreed_defaults, agreed_settings, changed_settings, has_more_epochs
from paceline.rpc.auth import OPEN
from paceline.rpc.channel import call
from paceline.rpc.protocol_version import PROTOCOL
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
    "ReportServer": ("server 1", lambda number: run_pb.ReportServerRequest(server=1, term=1, protocol=number)),
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
    assert (chief.membership.places, cluster.servers[0].driver.plan) == ({}, None)


def followed(cluster: Cluster, say: Any) -> follower.Follower:
    """Another one of server 1, after its end."""
    driver, known = cluster.servers[1].driver, cluster.servers[1]._follower
    one = follower.Follower(driver, known._versions, cluster.addresses[0], OPEN, say, ServerStart(1), known._figures)
    one.start()
    one._thread.join(30)
    return one


def test_a_server_of_another_release_ends_instead_of_asking_again(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "PROTOCOL", PROTOCOL + 1)
    one = followed(cluster, lambda event, **facts: None)
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

    served, said = cluster.servers[1], list[str]()
    monkeypatch.setattr(follower, "call", fails)
    one = followed(cluster, lambda event, **facts: said.append(event))
    assert (one.refusal or served.driver.failure) is error
    assert not said
    served.driver.failure = None


def test_a_server_that_can_not_say_how_it_is_ends_instead_of_following_no_more(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    error, served = ValueError("Value out of range"), cluster.servers[1]

    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(follower, "start_message", fails)
    followed(cluster, lambda event, **facts: None)
    assert served.driver.failure is error
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


GIVEN = Config(task="a/digits.py", policy=Options(name="ssp", bound=3), epochs=7, plan={"alignment": 32})
"""What is set besides the defaults: a file, a policy and its option, a number, and one within a section."""


def test_each_setting_has_a_line_of_its_own() -> None:
    found = agreed_settings(GIVEN)
    assert {"task=digits.py", "policy.name=ssp", "policy.bound=3", "epochs=7", "plan.alignment=32"} <= set(found)
    names = [line.partition("=")[0] for line in found]
    assert len(names) == len(set(names))


def test_what_was_given_is_no_default_though_the_rest_of_its_section_is() -> None:
    defaults = agreed_defaults(GIVEN)
    assert {"plan.slices=memorywise", "seed=0"} <= defaults <= set(agreed_settings(GIVEN))
    assert not {"policy.name=ssp", "policy.bound=3", "epochs=7", "plan.alignment=32"} & defaults


def test_another_option_of_the_policy_is_a_difference_of_one_line() -> None:
    other = GIVEN.model_copy(update={"policy": Options(name="ssp", bound=4)})
    assert set(agreed_settings(GIVEN)) ^ set(agreed_settings(other)) == {"policy.bound=3", "policy.bound=4"}


@pytest.mark.parametrize(
    ("before", "now", "may_go_on"),
    [
        ({}, {"epochs": 9}, True),
        ({}, {"epochs": 5}, False),
        ({}, {"epochs": 9, "seed": 3}, False),
        ({"servers": 0}, {"servers": 0, "epochs": 9}, False),
        ({"svm": {"average_last": 0.5}}, {"svm": {"average_last": 0.5}, "epochs": 9}, True),
    ],
)
def test_a_run_may_go_on_with_more_epochs_and_nothing_else(before: dict, now: dict, may_go_on: bool) -> None:
    old = Config.model_validate({"epochs": 7} | before)
    new = Config.model_validate({"epochs": 7} | now)

    assert (changed_settings(agreed_settings(old), agreed_settings(new)) == []) is may_go_on
    assert has_more_epochs(old, new) is may_go_on
    assert not has_more_epochs(new, new)
