"""How each server began is in the run's status and metrics, whichever server it is."""

import time
from pathlib import Path

import pytest

from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import Cluster, Context, Pusher, config_of


def starts(cluster: Cluster) -> dict[int, pb.ServerStatus]:
    found = cluster.run.Status(pb.StatusRequest(), Context())
    return {server.server: server for server in found.servers}


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
