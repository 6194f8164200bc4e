"""Where processes listen: on this machine alone by default; elsewhere with TLS, or by an explicit word."""

import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

import psutil
import pytest
from prometheus_client import CollectorRegistry, Counter

from paceline.core.errors import ConfigError, UsageError
from paceline.launch.status.chief_status import RemoteChief, exposed
from paceline.launch.this_machine.free_ports import is_free
from paceline.rpc.auth import Credentials, bearer, held
from paceline.rpc.kept_authority import FOLDER, make_folders
from paceline.rpc.listening import EVERYWHERE, LOOPBACK, check_bind, listening_socket
from paceline.rpc.process import start_metrics
from paceline.rpc.tls import AUTHORITY
from paceline.rpc.tokens import Claims, sign
from paceline.server.command_line import ToldServer
from paceline.server.server import Server
from paceline.worker.command_line import ToldWorker
from tests.support.in_process import Cluster, config_of


def test_a_kernel_without_ipv6_listens_by_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)

    with listening_socket(EVERYWHERE, 0, 1) as found:
        assert found.family == socket.AF_INET
        assert not is_free(found.getsockname()[1])


def test_a_proxy_of_the_environment_stands_in_nobodys_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with closing(Cluster(config_of("asp"), tmp_path)) as cluster:
        status = RemoteChief(cluster.addresses[0], Credentials("")).status()

    assert status is not None


SECRET = "the-secret-of-this-run"
OTHER = "127.0.0.2"
"""An address of this machine that is not the usual one."""


def answers(host: str, port: int) -> bool:
    with suppress(OSError), socket.create_connection((host, port), timeout=5):
        return True
    return False


def listens(host: str, port: int) -> bool:
    """Whether this process does: at one address another process may have the port that the kernel gave at another."""
    own = (each.laddr for each in psutil.Process().net_connections("tcp") if each.status == psutil.CONN_LISTEN)
    return answers(host, port) and any(
        at.port == port and at.ip.removeprefix("::ffff:") in (host, "0.0.0.0", "::") for at in own
    )


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    return make_folders(tmp_path / "keys", {}, (), 1)[0].folder


# which address
@pytest.mark.parametrize(("bind", "elsewhere"), [(None, False), (OTHER, True), (EVERYWHERE, True)])
@pytest.mark.parametrize("transport", ["lane", "grpc"])
def test_a_server_listens_where_it_was_told_and_on_this_machine_alone_by_itself(
    tmp_path: Path, keys: Path, transport: str, bind: str | None, elsewhere: bool
) -> None:
    told = ToldServer(folder=tmp_path / "server", **({} if bind is None else {"bind": bind}))
    server = Server(config_of(workers=1, servers=1, transport=transport), told, Credentials(SECRET, keys))
    server.start()
    ports = [server.port, server.health.port, *([server.lane.port] if server.lane else [])]
    try:
        assert [listens(OTHER, port) for port in ports] == [elsewhere] * len(ports)
        assert [listens(LOOPBACK, port) for port in ports] == [bind != OTHER] * len(ports)
    finally:
        server.close(grace=0)


@pytest.mark.parametrize("host", ["10.0.0.5", "::", "0.0.0.0", "2001:db8::1"])
def test_beyond_this_machine_plain_text_has_to_be_asked_for(host: str) -> None:
    with pytest.raises(UsageError, match=f"--bind {host} without TLS: everybody on the way .* --plain-text"):
        check_bind(host, has_keys=False, may_be_plain=False)
    check_bind(host, has_keys=True, may_be_plain=False)
    check_bind(host, has_keys=False, may_be_plain=True)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_on_this_machine_alone_nothing_has_to_be_encrypted(host: str) -> None:
    check_bind(host, has_keys=False, may_be_plain=False)


@pytest.mark.parametrize("host", ["", "server-a.lan", "10.0.0", "10.0.0.5:80"])
def test_an_address_that_is_none_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=f"--bind {host}: expected an IP address of this machine"):
        check_bind(host, has_keys=False, may_be_plain=False)


def test_an_address_of_another_machine_is_refused(tmp_path: Path, keys: Path) -> None:
    told = ToldServer(folder=tmp_path / "server", bind="192.0.2.1")
    with pytest.raises(ConfigError, match=r"Can't listen on lane port 0 of 192\.0\.2\.1: Cannot assign requested"):
        Server(config_of(workers=1, servers=1), told, Credentials(SECRET, keys))
    told = ToldServer(folder=tmp_path / "other", bind="192.0.2.1")
    with pytest.raises(ConfigError, match=r"gRPC port 0: it is in use, or 192\.0\.2\.1 is not here"):
        Server(config_of(workers=1, servers=1, transport="grpc"), told, Credentials(SECRET, keys))


@pytest.mark.parametrize(
    ("bind", "has_keys", "plain"), [(OTHER, False, False), ("::", False, True), ("::", True, False)]
)
def test_the_status_the_metric_and_the_log_say_that_calls_are_plain_text(
    tmp_path: Path, keys: Path, bind: str, has_keys: bool, plain: bool
) -> None:
    shown, said = Credentials(SECRET, keys if has_keys else None), list[str]()
    told = ToldServer(folder=tmp_path / "server", bind=bind, plain_text=plain)
    server = Server(config_of(workers=1, servers=1), told, shown, lambda event, **facts: said.append(event))
    server.start()
    try:
        with closing(RemoteChief(f"127.0.0.1:{server.port}", shown)) as chief:
            status = chief.status() if bind != OTHER else None
        assert server.registry.get_sample_value("paceline_server_plain_text") == plain
        assert any("plain text" in each for each in said) == plain
        if status is not None:
            assert [line[:45] for line in exposed(status)] == ["note: calls from other machines are plain tex"] * plain
    finally:
        server.close(grace=0)


def test_beyond_this_machine_a_process_takes_a_token(tmp_path: Path, keys: Path) -> None:
    with pytest.raises(UsageError, match=r"--bind :: without --token-file: anyone who reaches this process"):
        ToldServer(folder=tmp_path, bind="::", tls=keys).credentials()


@pytest.mark.parametrize("host", ["10.0.0.6", "worker-0", "2001:db8::1"])
def test_a_worker_that_is_called_by_others_has_to_listen_for_them(tmp_path: Path, keys: Path, host: str) -> None:
    (tmp_path / "token").write_text(SECRET)
    told = ToldWorker(shards=tmp_path, servers="h:1", peer_host=host, token_file=tmp_path / "token", tls=keys)
    with pytest.raises(UsageError, match=rf"--peer-host {host}, .*listens on 127.0.0.1, so .* Add --bind ::"):
        told.credentials()
    assert told.model_copy(update={"bind": "::"}).credentials().tls == keys


# metrics
@pytest.fixture
def guarded(keys: Path) -> Iterator[int]:
    """The port of metrics that are read by TLS and with a token."""
    registry = CollectorRegistry()
    Counter("paceline_seen", "Seen", registry=registry).inc(3)
    web = start_metrics(0, registry, "::", Credentials(SECRET, keys, run="digits"), run="digits")
    yield web.server_port
    web.shutdown()
    web.server_close()


def read(port: int, keys: Path, token: str = "", scheme: str = "https") -> tuple[int, str]:
    context = ssl.create_default_context(cafile=keys / AUTHORITY)
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # as Python 3.13 does
    asked = Request(f"{scheme}://127.0.0.1:{port}/metrics", headers={"Authorization": token} if token else {})
    try:
        with urlopen(asked, timeout=20, context=context if scheme == "https" else None) as page:
            return page.status, page.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.parametrize("role", ["reader", "worker", "admin"])
def test_a_token_that_may_look_opens_the_metrics(guarded: int, keys: Path, role: str) -> None:
    token = held(Credentials(SECRET, role=role, name=role, run="digits")).shown()
    status, page = read(guarded, keys, token)
    assert status == 200
    assert 'paceline_seen_total{run="digits"} 3.0' in page


def test_without_a_good_token_the_metrics_say_what_is_missing(guarded: int, keys: Path) -> None:
    now = time.time()
    expired = sign(SECRET, Claims("digits", "reader", "", now - 90_000, now - 3_600))
    other = held(Credentials("the-secret-of-another-run", run="digits")).shown()
    for token, said in (("", "carries no token"), (bearer(expired), "expired"), (other, "secret")):
        status, page = read(guarded, keys, token)
        assert status == 401, page
        assert said in page


def test_the_metrics_of_another_run_are_not_shown(guarded: int, keys: Path) -> None:
    status, page = read(guarded, keys, held(Credentials(SECRET, role="reader", run="mnist")).shown())
    assert (status, "for run 'mnist'" in page) == (403, True)


def test_guarded_metrics_are_not_read_in_plain_text(guarded: int, keys: Path) -> None:
    with pytest.raises((URLError, ConnectionError)):
        read(guarded, keys, scheme="http")
    assert read(guarded, keys, held(Credentials(SECRET, run="digits")).shown())[0] == 200


def test_guarded_metrics_show_the_newest_certificate(guarded: int, keys: Path) -> None:
    shutil.rmtree(keys / FOLDER)
    make_folders(keys, {}, (), 1)
    assert read(guarded, keys, held(Credentials(SECRET, run="digits")).shown())[0] == 200


def test_a_silent_reader_keeps_nobody_else_from_the_metrics(guarded: int, keys: Path) -> None:
    with socket.create_connection((LOOPBACK, guarded)):
        assert read(guarded, keys, held(Credentials(SECRET, run="digits")).shown())[0] == 200


@pytest.mark.parametrize(
    ("told", "is_guarded"), [({}, False), ({"bind": "::"}, True), ({"bind": "::", "open_metrics": True}, False)]
)
def test_metrics_are_guarded_beyond_this_machine_unless_they_are_opened(
    tmp_path: Path, keys: Path, told: dict[str, object], is_guarded: bool
) -> None:
    shown = Credentials(SECRET, keys)
    assert ToldServer(folder=tmp_path, **told).metrics_guard(shown) == (shown if is_guarded else None)
