"""Whose a certificate is: what comes with a token must be made out to the same process; what `paceline keys certs` writes."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError, DiskError, PermissionDenied, UsageError
from paceline.rpc.auth import Credentials, read_credentials
from paceline.rpc.certificates import HERE
from paceline.rpc.certificates import Authority as OwnAuthority
from paceline.rpc.kept_authority import FOLDER, KEY, check_hosts, make_folders, parse_names
from paceline.rpc.roles import ANY_PROCESS, Role, fault_of_certificate
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, is_named, own_folder, read_keys
from paceline.rpc.token_file import run_secret
from paceline.server.command_line import ToldServer
from paceline.worker.command_line import ToldWorker
from tests.rpc.test_tls import numbers
from tests.support.fake_service import Served, Service, client, exchange
from tools.authority import Authority

SECRET = "the-secret-of-this-run"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(params=["lane", "grpc"])
def served(request: pytest.FixtureRequest, authority: Authority, tmp_path: Path) -> Iterator[Served]:
    found = Served(request.param, Service(), SECRET, tls=authority.write(tmp_path / "server", name="server-0"))
    yield found
    found.stop()


def push(served: Served, keys: Path, role: Role, name: str) -> None:
    exchange(client(served.kind, served.address, Credentials(SECRET, keys, role, name)), numbers(10))


@pytest.mark.parametrize("name", ["worker-0", "worker", ANY_PROCESS])
def test_a_worker_with_a_certificate_of_its_own_or_of_all_may_call(
    served: Served, authority: Authority, tmp_path: Path, name: str
) -> None:
    push(served, authority.write(tmp_path / "keys", name=name), "worker", "worker-0")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("worker-1", r"is that of 'worker-1', the process is worker-0 .worker.* \(paceline keys certs DIR worker-0\)"),
        ("evaluator", "certificate is that of 'evaluator', the process is worker-0"),
        (None, "certificate of worker-0 .worker. names nobody: .* no CN.* paceline keys certs DIR worker-0"),
    ],
)
def test_a_worker_with_the_certificate_of_another_process_is_refused(
    served: Served, authority: Authority, tmp_path: Path, name: str | None, said: str
) -> None:
    with pytest.raises(PermissionDenied, match=said):
        push(served, authority.write(tmp_path / "keys", name=name), "worker", "worker-0")


@pytest.mark.parametrize(
    ("name", "role", "of", "is_good"),
    [
        ("worker-3", "worker", "worker-3", True),
        ("worker-3", "worker", "worker-*", True),
        ("server-3", "worker", "worker-*", False),
        ("admin", "admin", "", True),
        ("worker-3", "admin", "", False),
        ("", "reader", "", False),
        ("*", "worker", "worker-3", False),
    ],
)
def test_a_certificate_is_that_of_a_process_by_its_name(name: str, role: Role, of: str, is_good: bool) -> None:
    assert (fault_of_certificate(name, role, of) == "") == is_good


@pytest.mark.parametrize("told", [ToldWorker(rank=1, shards="s", servers="h:1"), ToldServer(folder="f", index=1)])
def test_a_process_with_the_certificate_of_another_one_does_not_start(
    authority: Authority, tmp_path: Path, told: ToldWorker | ToldServer
) -> None:
    keys = authority.write(tmp_path / "keys", name="worker-0")
    with pytest.raises(ConfigError, match=rf"certificate is that of 'worker-0', the process is {told.name}"):
        told.model_copy(update={"tls": keys}).credentials()


def test_a_process_takes_the_folder_of_its_name(authority: Authority, tmp_path: Path) -> None:
    for name in ("worker-0", "worker-1"):
        authority.write(tmp_path / name, name=name)
    told = ToldWorker(rank=1, shards="s", servers="h:1", tls=tmp_path)
    assert told.credentials().tls == tmp_path / "worker-1"
    with pytest.raises(ConfigError, match=r"no folder worker-7, and none for all.*keys certs .* worker-7"):
        own_folder(tmp_path, "worker-7")
    authority.write(tmp_path)
    assert own_folder(tmp_path, "worker-7") == tmp_path


def test_who_looks_at_a_run_takes_the_folder_that_fits_the_token(authority: Authority, tmp_path: Path) -> None:
    for name in ("admin", "reader", "worker-1"):
        authority.write(tmp_path / name, name=name)
    secret = run_secret(SECRET, "")
    for role, name, folder in (
        ("reader", "reader", "reader"),
        ("reader", "alice", "reader"),
        ("worker", "worker-1", "worker-1"),
    ):
        file = tmp_path / f"{name}.token"
        file.write_text(secret.issued("digits", role, name))
        assert read_credentials(file, tmp_path).tls == tmp_path / folder
    (tmp_path / "secret").write_text(SECRET)
    assert read_credentials(tmp_path / "secret", tmp_path).tls == tmp_path / "admin"
    anybody = secret.issued("digits", "worker", "worker-*")
    cut = anybody.rstrip().rpartition("\n")[0] + "\ney.x.y"
    for content, said in (
        (anybody, "no folder worker, and none for all"),
        (cut, r"can't be read: .*paceline keys token"),
    ):
        (tmp_path / "other").write_text(content)
        with pytest.raises(ConfigError, match=said):
            read_credentials(tmp_path / "other", tmp_path)


# paceline keys certs
def made(place: Path, *words: str, hosts: tuple[str, ...] = (), days: float = 365.0) -> list[str]:
    return [each.folder.name for each in make_folders(place, parse_names(words), hosts, days)]


def test_each_name_gets_a_folder_that_only_this_user_may_read(tmp_path: Path) -> None:
    assert made(tmp_path, "server-0=10.0.0.5,a.lan", "worker-0", hosts=("b.lan",)) == ["server-0", "worker-0"]

    server, worker = tmp_path / "server-0", tmp_path / "worker-0"
    assert [read_keys(each).name for each in (server, worker)] == ["server-0", "worker-0"]
    for host in ("10.0.0.5", "a.lan", "b.lan", *HERE):
        assert is_named(server, host)
        assert is_named(worker, host) == (host not in ("10.0.0.5", "a.lan"))
    files = [file for each in (server, worker, tmp_path / FOLDER) for file in each.iterdir()]
    assert {file.stat().st_mode & 0o077 for file in files} == {0}
    assert [each.stat().st_mode & 0o077 for each in (server, worker, tmp_path / FOLDER)] == [0, 0, 0]


def test_without_names_one_certificate_is_for_all(tmp_path: Path) -> None:
    made(tmp_path / "keys", hosts=("10.0.0.5",))
    assert read_keys(tmp_path / "keys").name == ANY_PROCESS
    assert is_named(tmp_path / "keys", "10.0.0.5")


def test_the_second_time_the_same_authority_signs(tmp_path: Path) -> None:
    made(tmp_path, "worker-0")
    first = (tmp_path / "worker-0" / CERTIFICATE).read_bytes()
    made(tmp_path, "worker-0", "worker-1")

    assert (tmp_path / "worker-0" / CERTIFICATE).read_bytes() != first
    shutil.copy(tmp_path / "worker-1" / AUTHORITY, tmp_path / "worker-0" / AUTHORITY)
    assert [read_keys(tmp_path / each).name for each in ("worker-0", "worker-1")] == ["worker-0", "worker-1"]


def test_no_certificate_is_valid_for_longer_than_its_authority(tmp_path: Path) -> None:
    old = OwnAuthority.new(days=30)
    end = max(each.until for each in make_folders(tmp_path, {}, (), 3650))
    assert end <= OwnAuthority.of(OwnAuthority.new(3651).own).until
    assert old.end_of(365) == old.until
    assert old.end_of(1) == pytest.approx(datetime.now(UTC) + timedelta(days=1), abs=timedelta(minutes=5))


@pytest.mark.parametrize("word", ["", "=10.0.0.5", "Worker 0", "../worker-0", "worker_0", "-x", "a" * 64, "ca", "*"])
def test_what_is_no_process_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=r"expected a process's name, like worker-0|may be called 'ca'"):
        parse_names([word])


@pytest.mark.parametrize("host", ["", "a b", "-a", "a..b", "10.0.0.5:80", "http://a", "a_b", "x" * 64])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(UsageError, match=r"is no host name and no IP address. Expected one like"):
        check_hosts([host])
    with pytest.raises(UsageError, match=r"is no host name and no IP address. Expected one like"):
        parse_names([f"server-0={host}"])


def _cut(folder: Path) -> None:
    (folder / KEY).write_text((folder / KEY).read_text()[:60])


def _of_another(folder: Path) -> None:
    (folder / KEY).write_bytes(OwnAuthority.new().own.key)


def _expired(folder: Path) -> None:
    old = OwnAuthority.new(days=1, now=datetime.now(UTC) - timedelta(days=2)).own
    (folder / KEY).write_bytes(old.key)
    (folder / AUTHORITY).write_bytes(old.certificate)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda folder: (folder / KEY).unlink(), "ca.crt exists, but .*ca.key does not"),
        (lambda folder: (folder / AUTHORITY).unlink(), "ca.key exists, but .*ca.crt does not"),
        (_cut, "are no authority's: .*Remove"),
        (_of_another, "the key is not that of the certificate"),
        (_expired, "expired at .*Remove that folder for a new one"),
    ],
)
def test_an_authority_that_is_no_good_is_told_and_nothing_is_written(
    tmp_path: Path, damage: Callable[[Path], None], said: str
) -> None:
    made(tmp_path, "worker-0")
    damage(tmp_path / FOLDER)
    with pytest.raises(ConfigError, match=said):
        made(tmp_path, "worker-1")
    assert not (tmp_path / "worker-1").exists()


def test_a_folder_that_can_not_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DiskError, match=r"Can't write keys to .*file: File exists. Give a folder"):
        made(tmp_path / "file", "worker-0")
