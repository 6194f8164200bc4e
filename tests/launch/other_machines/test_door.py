"""The door and those who come to it, over real sockets of this machine: who is let in, and what the others hear."""

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from paceline.core.errors import (
    BadPush,
    ConfigError,
    DataError,
    OtherProtocol,
    PoolFull,
    ServersGone,
    Stopped,
    Unauthenticated,
    UsageError,
)
from paceline.core.settings.config import Config
from paceline.launch.other_machines import agent, door, reach_head
from paceline.launch.other_machines.agent import HeadCalls, Offer, seated
from paceline.launch.other_machines.door import Door, HostServicer, caller_of, differences, own_addresses
from paceline.launch.other_machines.hosts import LOST, Hosts
from paceline.launch.other_machines.key import JoinKey
from paceline.launch.other_machines.listening import usual_port
from paceline.launch.other_machines.reach_head import DOOR, Head, address_of, metadata, reach
from paceline.launch.this_machine.signals import Signals
from paceline.rpc.certificates import Authority, self_signed
from paceline.rpc.key_files import write_keys
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.tls import read_keys
from paceline.v1 import host_service_pb2 as pb
from paceline.v1.host_service_pb2_grpc import HostServiceStub
from tests.support.ports import own_port

OFFER = Offer(name="b", workers=1, servers=0)
FILES = bytes(range(256)) * 10_000


def token_of(name: str) -> str:
    """In place of a token file."""
    return f"the token of {name}"


class Rig:
    """A head with an open door."""

    def __init__(self, folder: Path) -> None:
        self.hosts = Hosts("play", {"worker": 2, "server": 0}, time.monotonic)
        self.authority = Authority.new()
        self.models = folder / "models"
        servicer = HostServicer(self.hosts, self.authority, token_of, "play", lambda: FILES, self.models)
        self.door = Door(own_port(), servicer)

    def reached(self, key: JoinKey | None = None) -> Head:
        return reach("127.0.0.1", self.door.port, key or self.door.key)

    def calls(self) -> HeadCalls:
        return HeadCalls(self.reached(), self.door.key)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.door.close()


def test_a_process_gets_its_own_token_with_the_order_and_no_more_once_it_has_begun(rig: Rig, tmp_path: Path) -> None:
    calls = rig.calls()
    joined = calls.join(OFFER)
    placed = rig.hosts.allot("worker", "worker-1", {"rank": 1}, tmp_path / "log")
    assert placed is not None
    _, process = placed

    def tokens(*begun: int) -> list[str]:
        children = [pb.ChildReport(name="worker-1", start=start) for start in begun]
        reply = calls.report(pb.HostServiceReportRequest(host=joined.host, children=children))
        return [order.token for order in reply.children]

    process.start = 1
    assert tokens() == ["the token of worker-1"]
    assert tokens(1) == [""]
    process.start = 2
    assert tokens(1) == ["the token of worker-1"]


def test_with_the_key_a_machine_gets_token_certificate_and_files(rig: Rig, tmp_path: Path) -> None:
    calls = rig.calls()
    joined = calls.join(OFFER)
    assert (joined.run, joined.name, joined.address) == ("play", "b", "127.0.0.1")
    assert calls.files(joined.host) == FILES
    read_keys(write_keys(tmp_path / "keys", joined.authority, joined.certificate, joined.key))
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (tmp_path / "keys").iterdir())


def test_a_machine_that_comes_back_waits_for_the_seat_that_its_dead_self_holds(rig: Rig) -> None:
    dead = rig.hosts.join("b", 2, 0, "127.0.0.1")
    said: list[str] = []

    def sleep(seconds: float) -> None:
        dead.lost = True

    assert seated(rig.calls(), OFFER, said.append, Signals(), sleep).host == 2
    (line,) = said
    assert "no free seat for this machine" in line
    assert "Trying again for 16 s, since one that has just died still counts" in line


def test_a_machine_that_gets_no_seat_in_the_end_is_told_why(rig: Rig) -> None:
    rig.hosts.join("c", 2, 0, "127.0.0.1")
    slept: list[float] = []
    with pytest.raises(PoolFull, match="no free seat for this machine"):
        seated(rig.calls(), OFFER, lambda text: None, Signals(), slept.append)
    assert sum(slept) > LOST


def test_a_key_with_another_secret_does_not_let_in(rig: Rig) -> None:
    other = JoinKey(bytes(10), rig.door.key.fingerprint)
    calls = HeadCalls(rig.reached(other), other)
    with pytest.raises(Unauthenticated, match="This key does not open this run"):
        calls.join(OFFER)


def test_the_key_of_another_run_is_refused_before_its_secret_is_shown(rig: Rig) -> None:
    other = JoinKey.new(self_signed(DOOR)[1])
    with pytest.raises(Unauthenticated, match=r"not the run that this key belongs to.*from an older run"):
        rig.reached(other)


def test_nobody_without_the_key_gets_the_files(rig: Rig) -> None:
    stub = HostServiceStub(rig.reached().channel)
    with pytest.raises(grpc.RpcError) as refused:
        list(stub.Files(pb.HostServiceFilesRequest(host=1), timeout=5))
    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_where_nobody_listens_the_address_that_was_tried_is_told(rig: Rig) -> None:
    rig.door.close()
    with pytest.raises(ServersGone, match=rf"tried 127.0.0.1 port {rig.door.port}: Connection refused.*firewall"):
        rig.reached()


def test_where_something_else_listens_that_is_told(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answer() -> None:
            caller, _ = other.accept()
            caller.recv(1)
            caller.sendall(b"SSH-2.0-OpenSSH\r\n")
            caller.close()

        threading.Thread(target=answer, daemon=True).start()
        with pytest.raises(ConfigError, match="is not a run with --listen"):
            reach("127.0.0.1", other.getsockname()[1], rig.door.key)


def test_a_way_that_leads_nowhere_is_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_way(*_: object) -> socket.socket:
        raise OSError(113, "No route to host")

    monkeypatch.setattr(reach_head.socket, "create_connection", no_way)
    with pytest.raises(ServersGone, match=r"tried 10.9.9.9 port 7077: No route to host"):
        reach("10.9.9.9", 7077, rig.door.key)


def test_a_name_that_is_no_machines_is_told(rig: Rig) -> None:
    with pytest.raises(ConfigError, match=r"can't find a machine called 'nobody.invalid'"):
        reach("nobody.invalid", 7077, rig.door.key)


@pytest.mark.parametrize("text", ["7077", "host", "host:", ":7077", "host:port", "host:0", "host:70000"])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"expected HOST:PORT as the run printed it"):
        address_of(text)


def test_an_address_may_be_of_ipv6() -> None:
    assert address_of("[fd00::1]:7077") == ("fd00::1", 7077)


def test_a_release_that_speaks_another_protocol_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "PROTOCOL", PROTOCOL + 1)
    with pytest.raises(OtherProtocol, match=f"host b speaks protocol {PROTOCOL + 1}, the head protocol {PROTOCOL}"):
        rig.calls().join(OFFER)


def test_other_versions_of_python_and_torch_are_told(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "versions", lambda: {"python": "3.99.0", "torch": "none"})
    said = rig.calls().join(OFFER).differences
    assert said[0].startswith("python 3.99.0 here, ")
    assert said[1].startswith("torch none here, ")
    assert differences({"python": "3.11"}, {"python": "3.11", "torch": "2"}) == []


def test_a_full_run_and_one_that_is_over_say_so(rig: Rig) -> None:
    calls = rig.calls()
    calls.join(Offer(name="b", workers=2, servers=0))
    full = "Run 'play' has no free seat for this machine: other machines already lend the 2 workers"
    with pytest.raises(PoolFull, match=full):
        calls.join(OFFER)
    rig.hosts.end(0, "done")
    with pytest.raises(Stopped, match=r"Run 'play' is over \(done\); no machine can join it any more"):
        calls.join(OFFER)


def test_a_model_that_was_written_elsewhere_comes_into_the_runs_folder(rig: Rig, tmp_path: Path) -> None:
    calls = rig.calls()
    host = calls.join(OFFER).host
    model = tmp_path / "last.safetensors"
    model.write_bytes(FILES)
    calls.keep(host, model)
    calls.keep(host, model)
    assert (rig.models / "last.safetensors").read_bytes() == FILES


@pytest.mark.parametrize("names", [["../config.yaml"], ["a/last.safetensors"], ["last.pt"], []])
def test_a_model_by_another_name_or_without_any_part_is_refused(rig: Rig, names: list[str]) -> None:
    stub = HostServiceStub(rig.reached().channel)
    parts = (pb.HostServiceKeepRequest(host=1, name=name) for name in names)
    with pytest.raises(grpc.RpcError) as refused:
        stub.Keep(parts, timeout=5, metadata=metadata(rig.door.key))
    assert refused.value.code() is grpc.StatusCode[BadPush.status]


def test_a_model_that_is_larger_than_any_is_refused_and_not_kept(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "MOST_MODEL", len(FILES) - 1)
    calls = rig.calls()
    model = tmp_path / "last.safetensors"
    model.write_bytes(FILES)
    with pytest.raises(BadPush, match=r"more than 2,559,999 bytes as last[.]safetensors, the most"):
        calls.keep(calls.join(OFFER).host, model)
    assert list(rig.models.iterdir()) == []


def test_a_head_that_sends_files_without_end_is_not_listened_to(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MOST_SENT", len(FILES) - 1)
    calls = rig.calls()
    with pytest.raises(DataError, match="more than 2,559,999 bytes of files, the most that a machine takes"):
        calls.files(calls.join(OFFER).host)


def test_a_port_that_is_taken_is_told(rig: Rig, tmp_path: Path) -> None:
    servicer = HostServicer(rig.hosts, rig.authority, "", "play", lambda: b"", tmp_path)
    with pytest.raises(ConfigError, match=f"Can't listen .* on port {rig.door.port}: the port is in use"):
        Door(rig.door.port, servicer)


def test_the_usual_port_gives_way_to_a_free_one(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.launch.other_machines.listening.PORT", rig.door.port)
    assert usual_port(Config()) == 0
    first = min(rig.door.port, 65000)
    assert first < usual_port(Config(ports=f"{first}-{first + 99}")) < first + 100, "within what a firewall lets in"


@pytest.mark.parametrize(
    ("peer", "address"),
    [
        ("ipv4:10.0.0.2:41234", "10.0.0.2"),
        ("ipv6:%5Bfd00::2%5D:41234", "fd00::2"),
        ("ipv6:%5B::ffff:10.0.0.2%5D:41234", "10.0.0.2"),
        ("unix:", "127.0.0.1"),
    ],
)
def test_the_callers_address_is_read(peer: str, address: str) -> None:
    assert caller_of(peer) == address


def test_this_machine_knows_addresses_of_its_own() -> None:
    assert {"127.0.0.1", "localhost", socket.gethostname()} <= set(own_addresses())
