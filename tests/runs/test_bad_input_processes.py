"""What real processes say to bad input: the sentence, the exit code or gRPC status, and that nothing was harmed."""

import itertools
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.slice.plan import make_plan
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.wire import frame, parse
from paceline.settings.load_settings import load
from paceline.v1 import parameter_service_pb2 as pb
from paceline.v1.parameter_service_pb2_grpc import ParameterServiceStub
from tests.support.in_process import LENGTH, SHAPES, Pusher
from tests.support.processes import TOKEN, Cluster, Process

ONES = np.ones(LENGTH, np.float32)
PATIENCE = 30
Status = grpc.StatusCode


# command lines and settings
SERVER = ("-m", "paceline.server", "--folder", "s0")
WORKER = ("-m", "paceline.worker", "--shards", "shards", "--servers", "localhost:1", "--set", "servers=1")
REFUSED = [
    ((*SERVER, "--set", "policy.name=sssp"), 78, "There is no 'sssp' among the policies: .*Did you mean 'ssp'"),
    ((*SERVER, "--set", "polivy.bound=3"), 78, "polivy: there is no such setting. Did you mean 'policy'"),
    ((*SERVER, "--set", "policy.bond=3"), 78, "policy.bond: there is no such setting. Did you mean 'bound'"),
    ((*SERVER, "--set", "workers=many"), 78, "workers: got 'many'; .*integer"),
    ((*SERVER, "--set", "workers=2", "--set", "data.shards=1"), 78, "2 workers but only 1 shards"),
    ((*SERVER, "--set", "plan.slices=whole", "--set", "plan.max_slice_bytes=1MB"), 78, "belongs to memorywise slices"),
    ((*SERVER, "--index", "2", "--set", "servers=2"), 78, "Server 2 of 2: the index goes from 0 to 1"),
    ((*SERVER, "--index", "1", "--set", "servers=2"), 78, "needs the chief's address: --chief"),
    ((*SERVER, "--config", "none.yaml"), 78, "Can't read the config none.yaml"),
    ((*SERVER, "--token-file", "none"), 78, "Can't read the token file none"),
    ((*SERVER, "--port", "70000"), 64, "Invalid value for '--port'"),
    ((*SERVER, "--bogus"), 64, "No such option: --bogus"),
    (("-m", "paceline.server", "--folder", "config.yaml/s0"), 73, "Can't use the folder .*a place to write"),
    ((*WORKER, "--servers", "localhost:1,localhost:2"), 78, "names 2 addresses, but the config has 1 servers"),
    (("-m", "paceline.sharder", "--out", "x", "--set", "task=none.py"), 78, "task file none.py does not exist"),
    (("-m", "paceline.sharder", "--out", "config.yaml/x"), 73, "Can't write the shards"),
]


def test_command_lines_and_settings_are_refused_with_a_sentence_and_a_code(tmp_path: Path) -> None:
    with Cluster(tmp_path) as cluster:
        # three at a time: fast on two cores, without crowding out others
        for number in range(0, len(REFUSED), 3):
            some = REFUSED[number : number + 3]
            started = [cluster.start(f"refused-{number + place}", *row[0]) for place, row in enumerate(some)]
            for process, (_, code, sentence) in zip(started, some, strict=True):
                assert_ended(process, code, sentence)


def assert_ended(process: Process, code: int, sentence: str) -> None:
    """The process ended with the code, and said the sentence."""
    ended = process.wait()
    text = " ".join(process.text().split())
    assert (ended, bool(re.search(sentence, text))) == (code, True), f"{ended}: {text}"


def test_a_server_is_refused_a_port_or_folder_that_is_taken(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster, socket.socket() as taken:
        server = cluster.listening(0, cluster.server(0))
        taken.bind(("localhost", 0))
        taken.listen()
        taken_port = taken.getsockname()[1]
        port = cluster.addresses[0].rpartition(":")[2]

        same_folder = cluster.start("same-folder", *SERVER, "--config", cluster.config)
        same_port = cluster.start("same-port", "-m", "paceline.server", "--folder", "other", "--port", port)
        other = ("-m", "paceline.server", "--folder", "third")
        same_metrics = cluster.start("same-metrics", *other, "--metrics-port", taken_port)

        assert_ended(same_folder, 78, "Another server uses s0")
        assert_ended(same_port, 78, f"Can't listen on gRPC port {port}: it is in use, or 127.0.0.1 is not here")
        assert_ended(same_metrics, 78, f"port {taken_port}")
        assert server.is_running


def test_workers_that_do_not_fit_the_run_are_refused(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        wrong = tmp_path / "wrong"
        wrong.write_text("another-random-word")

        for option, value, sentence in (
            ("--set", "batch_size=64", "has other settings .*batch_size=64"),
            ("--token-file", wrong, "Unauthenticated: .*is of another run, or of an older secret"),
            ("--set", "workers=3", "3 workers but only 2 shards .*every worker needs one"),
        ):
            assert_ended(cluster.worker(0, option, value), 78, sentence)
        # its plan is fixed by the first worker's model
        first = cluster.worker(0)
        cluster.until(lambda status: any("ready: worker-0" in words for words in status.missing))
        assert_ended(cluster.worker(1, mode="ledger"), 78, "PlanMismatch: worker-1's model has other tensors than")
        assert first.is_running


def test_missing_or_damaged_shards_end_a_worker(tmp_path: Path) -> None:
    with Cluster(tmp_path, servers=1) as cluster:
        sharder, _ = cluster.sharder(), cluster.servers()
        assert sharder.wait() == 0
        shard = cluster.shards / "shard-0" / "features.npy"
        damaged = bytearray(shard.read_bytes())
        damaged[-1] ^= 1
        shard.chmod(0o644)
        shard.write_bytes(damaged)

        assert_ended(cluster.worker(0), 65, "DataError: .*damaged")
        shard.unlink()
        assert_ended(cluster.worker(0), 65, "DataError: .*missing|DataError: .*not there|DataError: .*damaged")
        (cluster.shards / "manifest.json").write_text("{}")
        assert_ended(cluster.worker(0), 65, "DataError: .*manifest.json is damaged")


# the wire
@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A run with one server that trains, and seats for one worker of each test."""
    pool = {"workers": 40, "start_when": 1, "servers": 1, "epochs": 1000, "lease": 600}
    sgd = {"name": "sgd", "lr": 1.0, "momentum": 0, "weight_decay": 0}
    with Cluster(tmp_path_factory.mktemp("wire"), policy={"name": "asp"}, optimizer=sgd, **pool) as cluster:
        cluster.servers()
        cluster.ready()
        yield cluster


numbers = itertools.count()


@pytest.fixture
def member(cluster: Cluster) -> Iterator[Pusher]:
    """A member that has pushed once."""
    run = SimpleNamespace(config=load(cluster.config), addresses=cluster.addresses, credentials=Credentials(TOKEN))
    pusher = Pusher(run, next(numbers)).join().sit()
    pusher.push(1.0)
    yield pusher
    pusher.chief.leave(pusher.incarnation, False)


@pytest.fixture
def channel(cluster: Cluster) -> Iterator[grpc.Channel]:
    with open_channel(cluster.addresses[0], Credentials(TOKEN)) as opened:
        yield opened


def plan_hash(member: Pusher) -> str:
    return make_plan(SHAPES, 1, member.around.config.plan).hash


def messages(member: Pusher, data: bytes = ONES.tobytes(), part: int = 60, **head: Any) -> Iterator[Any]:
    """The next push of the member; `head` overrides what its head says."""
    facts: dict[str, Any] = {"worker": member.name, "incarnation": member.incarnation, "clock": member.clock + 1}
    facts |= {"examples": 1, "base_term": 1, "view": member.view, "plan_hash": plan_hash(member)}
    facts |= {"codec": "none", "pull_codec": "none", "elements": LENGTH}
    for start in range(0, len(data), part):
        piece = pb.PushPullRequest(offset=start // 4, data=data[start : start + part])
        if start == 0:
            piece.head.CopyFrom(pb.PushHead(**(facts | head)))
        yield piece


POISON: dict[str, tuple[dict[str, Any], Status, str]] = {
    "an unknown worker": ({"worker": "worker-99"}, Status.ABORTED, "does not count any more"),
    "no incarnation": ({"incarnation": 0}, Status.ABORTED, "Join again"),
    "a 9 MiB part": (
        {"data": bytes(9 << 20), "part": 9 << 20, "elements": 9 << 18},
        Status.RESOURCE_EXHAUSTED,
        "larger than max",
    ),
}


@pytest.mark.parametrize("kind", POISON)
def test_a_bad_push_is_refused_and_touches_nothing(channel: grpc.Channel, member: Pusher, kind: str) -> None:
    more, status, sentence = POISON[kind]
    before = member.model.copy()

    with pytest.raises(grpc.RpcError) as refused:
        list(ParameterServiceStub(channel).PushPull(messages(member, **more), timeout=PATIENCE))

    assert (refused.value.code(), sentence in refused.value.details()) == (status, True), refused.value
    assert member.push(1.0)[0].outcome == pb.OUTCOME_FOLDED
    np.testing.assert_array_equal(member.model, before - ONES)


GARBAGE: dict[str, tuple[list[bytes], str]] = {
    "no message": ([], "before its first message"),
    "no protobuf": ([b"\xff" * 50], "damaged"),
    "a head that is none": ([frame(b"\xff\xff\xff", 0, b"")], "damaged"),
    "no head": ([frame(b"", 0, b"1234")], "is no name for a worker"),
    "a page": ([b"GET / HTTP/1.1\r\n\r\n"], "damaged"),
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("method", ["PushPull", "Push", "Initialise"])
def test_garbage_on_the_data_plane_is_refused(channel: grpc.Channel, member: Pusher, method: str, kind: str) -> None:
    messages, sentence = GARBAGE[kind]
    send = channel.stream_stream(f"/paceline.v1.ParameterService/{method}")

    with pytest.raises(grpc.RpcError) as refused:
        list(send(iter(messages), timeout=PATIENCE))

    seen = refused.value.code(), sentence in refused.value.details()
    assert seen == (Status.INVALID_ARGUMENT, True), refused.value
    assert member.push(1.0)[0].outcome == pb.OUTCOME_FOLDED


def test_a_server_answers_no_call_without_the_token_but_its_health(cluster: Cluster) -> None:
    port = json.loads((cluster.folder / "ports-0.json").read_text())["health_port"]

    with grpc.insecure_channel(cluster.addresses[0]) as channel, pytest.raises(grpc.RpcError) as refused:
        ParameterServiceStub(channel).Resume(pb.ResumeRequest(), timeout=PATIENCE)
    with grpc.insecure_channel(f"localhost:{port}") as channel:
        reply = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=PATIENCE)

    assert refused.value.code() is Status.UNAUTHENTICATED
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


@given(st.binary(min_size=1, max_size=300), st.integers(0, 2**63), st.binary(max_size=3000))
def test_messages_framed_by_hand_are_protobufs_own(digest: bytes, offset: int, data: bytes) -> None:
    head = pb.PushHead(digest=digest, clock=offset // 2)
    for has_head in (True, False):
        part = pb.PushPullRequest(offset=offset, data=data)
        if has_head:
            part.head.CopyFrom(head)
        serialised = head.SerializeToString() if has_head else b""

        framed = frame(serialised, offset, data)
        parsed = parse(part.SerializeToString())

        assert framed == part.SerializeToString()
        assert (parsed.head, parsed.offset, bytes(parsed.data)) == (serialised, offset, data)
