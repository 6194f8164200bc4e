"""A machine outside the cluster that has a key: what it gets ready, what keeps it out, and how it goes with its workers."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from typer.testing import CliRunner

from paceline.base.variables import TLS
from paceline.cli.__main__ import app
from paceline.core.errors import (
    ConfigError,
    OtherProtocol,
    PacelineError,
    ServersGone,
    Stopped,
    Unauthenticated,
    UsageError,
)
from paceline.launch.folder.cluster_key import ClusterKey
from paceline.launch.other_machines import join_cluster
from paceline.launch.other_machines.agent import Offer
from paceline.launch.other_machines.join_cluster import (
    RANKS,
    Stay,
    StillThere,
    free_ranks,
    join,
    orders,
    unpacked,
    words,
)
from paceline.rpc.auth import Credentials, authentication
from paceline.rpc.host import bind, make_server
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY
from paceline.v1 import host_service_pb2 as pb
from paceline.v1.run_service_pb2 import StatusReply
from paceline.v1.run_service_pb2_grpc import RunServiceServicer, add_RunServiceServicer_to_server
from tests.sharder.test_serve_processes import SPARSE, libsvm
from tests.support.processes import TOKEN, Cluster
from tools.authority import Authority

RUN = "run: demo\ntask: rcv1\nupdates: sparse\nworkers: 3\nservers: 1\npolicy: bsp\ndata: {source: server}\n"
OFFER = Offer(name="box", workers=1, servers=0, device="cpu")


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of the run."""
    monkeypatch.setenv(TLS, "")  # what a key sets goes with the test
    monkeypatch.setattr(join_cluster, "EVERY", 0.01)
    return Authority().write(tmp_path / "keys")


def key_of(
    keys: Path, server: str = "127.0.0.1:1", run: str = RUN, token: str = "the-secret-of-this-run", **files: str
) -> ClusterKey:
    of_run = {"run": "demo", "servers": (server,), "shard_server": server, "token": token}
    return ClusterKey(**of_run, **certificates(keys), files={"run.yaml": run, **files})


def certificates(keys: Path) -> dict[str, str]:
    names = {"authority": AUTHORITY, "certificate": CERTIFICATE, "key": KEY}
    return {what: (keys / name).read_text() for what, name in names.items()}


class Chief(RunServiceServicer):
    """Server 0 of a run in some phase."""

    def __init__(self, keys: Path) -> None:
        self.phase = "training"
        self.late = 0
        """Calls that get no answer in time."""
        self._server = make_server(2, authentication(Credentials("the-secret-of-this-run")), lambda *_: None)
        add_RunServiceServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{bind(self._server, 0, 'gRPC', keys)}"
        self._server.start()
        self.close: Callable[[], Any] = lambda: self._server.stop(0).wait()

    def Status(self, request: Any, context: Any) -> StatusReply:
        if self.late:
            self.late -= 1
            context.abort(grpc.StatusCode.UNAVAILABLE, "busy")
        return StatusReply(phase=f"RUN_PHASE_{self.phase.upper()}", reason="the budget of epochs is spent")


@pytest.fixture
def chief(keys: Path) -> Iterator[Chief]:
    found = Chief(keys)
    yield found
    found.close()


def test_what_the_key_holds_becomes_files_of_this_user_alone(keys: Path, tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    script = RUN.replace("rcv1", "/script/train.py").replace("source: server", "source: script")
    script = script.replace("sparse", "dense")

    config = unpacked(key_of(keys, run=script, **{"script/train.py": "import near\n", "script/near.py": ""}), folder)

    assert config.task == str(folder / "script/train.py")
    assert (folder / "script/near.py").exists()
    assert config.transport == "grpc", "the lane's port is not open to others"
    assert os.environ[TLS] == str(folder / "keys")
    assert (folder / f"keys/{KEY}").stat().st_mode & 0o777 == 0o600


def test_a_key_that_would_write_elsewhere_is_refused(keys: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"'\.\./mine\.py', which lies elsewhere; nothing was started"):
        unpacked(key_of(keys, **{"../mine.py": ""}), tmp_path)


@pytest.mark.parametrize(
    ("before", "after", "told_of"),
    [
        ("policy: bsp\ndata: {source: server}", "", "can't read its volume of shards: take the component data-server"),
        ("servers: 1\npolicy: bsp", "servers: 0\npolicy: dpsgd", "In a run without servers workers call one another"),
        ("policy: bsp", "policy: ensemble", "Under the policy ensemble the evaluator reads each worker's model"),
    ],
)
def test_a_run_whose_workers_must_be_in_the_cluster_is_named(
    keys: Path, tmp_path: Path, before: str, after: str, told_of: str
) -> None:
    settings = RUN.replace("task: rcv1\nupdates: sparse", "task: digits").replace(before, after)

    with pytest.raises(ConfigError, match=told_of):
        unpacked(key_of(keys, run=settings), tmp_path)


def test_a_worker_takes_a_number_that_nobody_has() -> None:
    taken = {f"worker-{rank}" for rank in RANKS if rank % 2}

    ranks = free_ranks(3, taken)

    assert len(set(ranks)) == 3
    assert all(rank in RANKS and rank % 2 == 0 for rank in ranks)
    with pytest.raises(UsageError, match="-w 300: the run takes 256 more workers from outside"):
        free_ranks(300, taken)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            '{"process": "w", "event": "waiting for a seat", "why": "All 2 are taken"}',
            "waiting for a seat: All 2 are taken",
        ),
        ('{"process": "worker-600", "event": "training", "clock": 0}', "training"),
        ('{"process": "worker-600", "event": "epoch", "epoch": 1}', ""),
        ("worker-600: ConfigError: other settings\x1b[2J", "worker-600: ConfigError: other settings?[2J"),
    ],
)
def test_of_a_workers_log_people_see_what_matters_to_them(line: str, told: str) -> None:
    assert words(line) == told


class Work:
    """A machine's processes, each of whose starts ends with the next of these codes; None: it does not end."""

    def __init__(self, *codes: int | None) -> None:
        self.codes = list(codes)
        self.starts: list[int] = []
        self.has_ended = False

    def carry_out(self, orders: list[pb.ChildOrder]) -> None:
        self.orders = orders
        self.starts += [order.start for order in orders if order.start > len(self.starts)]

    def reports(self) -> list[pb.ChildReport]:
        (order,) = self.orders
        said = pb.ChildReport(name=order.name, start=order.start, log_from=order.log_size, ended="ended")
        code = self.codes[order.start - 1]
        if code is not None:
            said.code = code
        return [said]

    def end(self, hurry: Any) -> None:
        self.has_ended = True


class Signs:
    """Ctrl-C after some looks."""

    def __init__(self, after: int = 1000) -> None:
        self._left = after

    @property
    def exit_code(self) -> int | None:
        self._left -= 1
        return 130 if self._left < 0 else None

    def hurry(self) -> bool:
        return False


@pytest.mark.parametrize(
    ("codes", "starts", "end", "told_of"),
    [
        ((0,), 1, 0, "the run is over"),
        ((-9, 70, 0), 3, 0, "worker-600 ended; it is started again"),
        ((78,), 1, 78, "worker-600 ended; it is not started again"),
        ((70, 70, 70), 3, 70, "worker-600 ended; it is not started again"),
        ((None,), 1, 130, "leaving the run"),
    ],
    ids=["to its end", "crashes", "a mistake", "too many crashes", "Ctrl-C lets the workers leave"],
)
def test_a_machine_stays_as_long_as_a_worker_can_go_on(
    keys: Path, codes: tuple[int | None, ...], starts: int, end: int, told_of: str
) -> None:
    said: list[str] = []
    work: Any = Work(*codes)
    signals: Any = Signs(after=5 if end == 130 else 1000)

    code = Stay(work, orders(key_of(keys), [600]), 2, said.append, signals).last()

    assert (code, len(work.starts)) == (end, starts)
    assert told_of in said
    assert end != 130 or (work.has_ended and said == ["leaving the run"])


def refusal(key: ClusterKey, patience: float = 5.0) -> tuple[PacelineError, list[str]]:
    said: list[str] = []
    with pytest.raises(PacelineError) as found:
        join(key, OFFER, patience, said.append)
    return found.value, said


def test_servers_that_can_not_be_reached_are_named_with_their_ports(keys: Path) -> None:
    with socket.socket() as shut:
        shut.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{shut.getsockname()[1]}"
        error, said = refusal(key_of(keys, address), patience=0.1)

    assert isinstance(error, ServersGone)
    for text in (str(error), said[0]):
        assert f"servers at {address}, {address} can't be reached from here (Connection refused)" in text
        assert "does a firewall let these ports in" in text


def test_a_machine_gives_up_once_servers_have_been_away_for_too_long(keys: Path) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
        servers = StillThere(key_of(keys, address), patience=0.0)
        work: Any = Work(None)
        signals: Any = Signs(after=10_000)

        with pytest.raises(ServersGone, match=f"servers at {address} can't be reached from here"):
            Stay(work, orders(key_of(keys), [600]), 2, print, signals, servers.check).last()


def test_a_key_of_another_time_is_told_from_one_of_another_run(keys: Path, tmp_path: Path, chief: Chief) -> None:
    for key in (
        key_of(keys, chief.address, token="the-secret-of-old-times"),
        key_of(Authority().write(tmp_path / "other"), chief.address),
    ):
        error, _ = refusal(key)
        assert isinstance(error, Unauthenticated)
        assert f"This key does not open the run at {chief.address}" in str(error)
        assert "Ask for a new one (paceline k8s key)" in str(error)


def test_a_chief_that_answers_late_is_asked_again_which_is_said_once_and_that_a_run_is_over(
    keys: Path, chief: Chief
) -> None:
    chief.phase, chief.late = "finished", 2
    error, said = refusal(key_of(keys, chief.address))
    assert isinstance(error, Stopped)
    assert str(error).startswith("Run 'demo' is over (the budget of epochs is spent); no machine can join")
    assert [text.partition(" (")[0] for text in said] == [f"server 0 of run demo at {chief.address} does not answer"]

    chief.late = 1000
    error, _ = refusal(key_of(keys, chief.address), patience=0.4)
    assert isinstance(error, ServersGone)
    assert f"server 0 of run demo at {chief.address} does not answer" in str(error)


def test_a_key_of_another_release_is_refused_before_anything_is_started(keys: Path) -> None:
    error, said = refusal(key_of(keys).model_copy(update={"protocol": PROTOCOL + 1}))

    assert isinstance(error, OtherProtocol)
    assert f"run demo speaks protocol {PROTOCOL + 1}, this machine protocol {PROTOCOL}" in str(error)
    assert said == []


def test_a_cluster_takes_no_servers_from_outside_and_a_key_is_one_file_that_is_here(keys: Path, tmp_path: Path) -> None:
    file = tmp_path / "demo.key"
    file.write_text(key_of(keys).text())

    for given, told in (
        ((file, "-s", "1"), "-s 1: the servers of a run on Kubernetes are pods"),
        ((file, "--key", "aaaa"), "is the key itself; leave out --key"),
        ((tmp_path / "no.key", "--key", "a"), "or the file that `paceline k8s key` wrote; there is no such file here"),
    ):
        done = CliRunner().invoke(app, ["join", *map(str, given), "-w", "1"])
        assert (done.exit_code, told in " ".join(done.output.split())) == (64, True)


URL = "s3://mine/run/shards"


@pytest.mark.nightly  # a store, a sharder and three processes; by day the tests above
def test_a_machine_joins_with_its_own_credentials_and_says_which_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("moto", reason="moto is not installed: make setup")
    from tests.support.object_store import object_store

    keys = Authority().write(tmp_path / "keys")
    (tmp_path / "made.svm").write_text(libsvm(400, 30))
    settings = SPARSE | {"servers": 1, "workers": 1, "epochs": 3, "start_timeout": 80, "transport": "grpc"}
    with object_store() as store:
        store.put("mine", {})
        store.set_variables(monkeypatch)
        data = {"shards_at": URL, "path": str(tmp_path / "made.svm"), "validation": 0.15}
        with Cluster(tmp_path / "run", run="demo", data=data, **settings) as run:
            sharder = run.start("sharder", "-m", "paceline.sharder", "--config", run.config)
            assert sharder.wait() == 0, sharder.text()
            run.listening(0, run.server(0, "--tls", keys))
            evaluator = run.evaluator("--tls", keys, "--shards", tmp_path / "evaluator")
            of_run = {"run": "demo", "servers": tuple(run.addresses), "token": TOKEN}
            key = ClusterKey(**of_run, **certificates(keys), files={"run.yaml": yaml.safe_dump(run.settings)})
            (tmp_path / "demo.key").write_text(key.text())

            code, said = joined(tmp_path, without=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
            assert code == 78, said
            assert "No credentials for the bucket 'mine' of S3" in said
            assert "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
            code, said = joined(tmp_path)
            assert code == 0, said
            assert "the run is over" in said
            assert evaluator.wait() == 0, evaluator.text()


def joined(folder: Path, without: tuple[str, ...] = ()) -> tuple[int, str]:
    """What `paceline join` ends with on a machine without these variables, and what it shows."""
    environment = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, "-P", "-m", "paceline.cli", "join", str(folder / "demo.key"), "-w", "1"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())
