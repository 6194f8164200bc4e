"""How each server began and what it has done is in the run's status, and what a push weighs at its worker."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from paceline.core.errors import TryAgain
from paceline.rpc.channel import call
from paceline.server import follower
from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import LENGTH, Cluster, Context, Pusher, config_of


@pytest.fixture(params=["lane", "grpc"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(config_of("asp", servers=2, epochs=100, transport=request.param), tmp_path)
    found.evaluator_ready()
    yield found
    found.close()


def figures(cluster: Cluster, server: int) -> pb.ServerFigures:
    found = cluster.run.Status(pb.StatusRequest(), Context()).servers
    return next((each.figures for each in found if each.server == server), pb.ServerFigures())


def test_servers_and_workers_say_what_they_did(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paceline.server.run_servicer._FIGURES", 0.05)
    pusher = Pusher(cluster).join().sit()
    before = pusher.client.traffic
    for _ in range(3):
        pusher.push(1.0)
    sent, received = (now - then for now, then in zip(pusher.client.traffic, before, strict=True))
    assert sent == received == 3 * 4 * LENGTH
    assert 0 < pusher.client.pulled < 60

    end = time.monotonic() + 30
    while figures(cluster, 1).pushes < 3:  # the other servers tell the chief after a while
        assert time.monotonic() < end
        time.sleep(0.02)
    found = [figures(cluster, server) for server in (0, 1)]
    assert [each.pushes for each in found] == [3, 3]
    assert sum(each.slice_bytes for each in found) == 4 * LENGTH
    for each in found:
        assert each.busy_seconds > 0
        assert 0 < each.checkpoint_seconds < each.seconds
        assert not each.disk_trouble


def starts(cluster: Cluster) -> dict[int, pb.ServerStatus]:
    found = cluster.run.Status(pb.StatusRequest(), Context())
    return {server.server: server for server in found.servers}


def test_the_chief_knows_a_new_start_of_a_server_before_that_has_any_news(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def without_news(method: Callable[..., Any], request: Message, timeout: float) -> Any:
        if isinstance(request, pb.FollowViewRequest):
            raise TryAgain("there is none")
        return call(method, request, timeout)

    monkeypatch.setattr(follower, "call", without_news)
    cluster.restart(1)
    assert told(cluster, 1, term=2).start.term == 2


def told(cluster: Cluster, server: int, term: int) -> pb.ServerStatus:
    """What the chief says of that server once it has heard of its start."""
    end = time.monotonic() + 30
    while (found := starts(cluster).get(server)) is None or found.term != term:
        assert time.monotonic() < end
        time.sleep(0.02)
    return found


@pytest.mark.parametrize("server", [0, 1])
def test_a_server_that_passes_over_a_damaged_snapshot_says_so(tmp_path: Path, server: int) -> None:
    cluster = Cluster(config_of("asp", servers=2, epochs=100), tmp_path)
    cluster.evaluator_ready()
    pusher = Pusher(cluster).join().sit()
    assert not told(cluster, server, 1).start.is_back
    for _ in range(2):
        pusher.push(1.0)
        cluster.servers[server]._snapshots.write_now()
    cluster.servers[server].close(grace=0)
    newest = max((tmp_path / f"server-{server}").glob("snapshot-*.safetensors"))
    newest.write_bytes(newest.read_bytes()[:-4])

    port = cluster.servers[server].port
    cluster.servers[server] = cluster.begin(server, port)

    found = told(cluster, server, 2)
    assert (found.start.is_back, found.start.version, found.start.damaged) == (True, 1, 1)
    assert cluster.metric("damaged_snapshots_total", server) == 1
    assert cluster.metric("recoveries_total", server) == 1
    cluster.close()
