"""Workers that get a notice while a run trains: what they owe is in the model when they are gone."""

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import Cluster, Process

ENDLESS = 100_000
"""Epochs of a run that the test itself stops."""
COUNTING = {"name": "sgd", "lr": 1.0, "momentum": 0, "weight_decay": 0}
"""With the ledger's gradients: an element is the number of its worker's gradients that are in the weights, exactly."""
STEPS = 200
"""Own steps between two pushes; they take longer than a signal takes to arrive."""
SLOW = {"slow": {"1": "2x"}, "nominal_step": 0.005}
"""So that worker-1 waits for nobody, and computes when the signal comes."""


def started(cluster: Cluster, version: int) -> list[Process]:
    """Workers that train with the ledger, once the chief's slice has this version."""
    sharder = cluster.sharder()
    cluster.servers()
    assert sharder.wait() == 0
    workers = [cluster.worker(rank, mode="ledger") for rank in range(2)]
    cluster.ready()
    cluster.until(lambda status: status.version >= version)
    return workers


def finished(cluster: Cluster, worker: Process) -> None:
    """Lets the worker that is left go on, and ends the run."""
    before = cluster.until(lambda status: True).version
    cluster.until(lambda status: status.version > before)
    cluster.stop()
    assert worker.wait() == 0
    cluster.finish()


@pytest.mark.parametrize(
    ("policy", "codec", "overlap"),
    [
        ("asp", {"push": {"name": "topk", "share": 0.05}}, False),
        ("asp", {"push": {"name": "topk", "share": 0.05}}, True),
        ("ssp", {"push": {"name": "topk", "share": 0.05}}, False),
    ],
)
def test_a_worker_that_leaves_pushes_what_its_codec_has_left_out(
    policy: str, codec: dict[str, Any], overlap: bool, tmp_path: Path
) -> None:
    settings = {"policy": {"name": policy}, "optimizer": COUNTING, "codec": codec, "overlap": overlap}
    with Cluster(tmp_path, epochs=ENDLESS, **settings) as cluster:
        stays, leaves = started(cluster, 40)
        leaves.send(signal.SIGTERM)
        assert leaves.wait() == 143
        finished(cluster, stays)

        for _, state in cluster.states():
            own = state.weights.reshape(-1, 4)[:, 1]
            assert own == pytest.approx(state.table["clocks"]["worker-1"]["clock"], abs=1e-3)


def test_a_file_is_a_notice_to_all_workers_of_its_machine_who_all_push_what_they_owe(tmp_path: Path) -> None:
    settings = {"policy": {"name": "asp"}, "optimizer": COUNTING, "codec": {"push": {"name": "topk", "share": 0.05}}}
    with Cluster(tmp_path, epochs=ENDLESS, **settings) as cluster:
        cluster.environment["PACELINE_NOTICE"] = str(tmp_path / "notice")
        workers = started(cluster, 40)
        (tmp_path / "notice").touch()
        assert [worker.wait() for worker in workers] == [143, 143]
        cluster.end_servers(143)

        for _, state in cluster.states():
            counts = state.weights.reshape(-1, 4)
            clocks = [state.table["clocks"][f"worker-{rank}"]["clock"] for rank in range(2)]
            assert (counts[:, :2] == clocks).all()


def test_a_worker_that_leaves_between_two_pushes_pushes_the_steps_that_it_has_made(tmp_path: Path) -> None:
    settings = {"policy": {"name": "downpour", "push_every": STEPS}, "optimizer": COUNTING, **SLOW}
    with Cluster(tmp_path, epochs=ENDLESS, **settings) as cluster:
        stays, leaves = started(cluster, 2)
        leaves.send(signal.SIGTERM)
        assert leaves.wait() == 143
        finished(cluster, stays)

        for _, state in cluster.states():
            own = state.weights.reshape(-1, 4)[:, 1]
            clock = state.table["clocks"]["worker-1"]["clock"]
            assert (own == own[0]).all()
            assert (clock - 1) * STEPS < own[0] < clock * STEPS


def test_in_rounds_a_worker_that_leaves_alone_pushes_the_steps_that_it_has_made(tmp_path: Path) -> None:
    settings = {"policy": {"name": "local_sgd", "steps": STEPS}, "optimizer": COUNTING, "batch_size": 10, **SLOW}
    with Cluster(tmp_path, epochs=ENDLESS, **settings) as cluster:
        stays, leaves = started(cluster, 2)
        leaves.send(signal.SIGTERM)
        assert leaves.wait() == 143
        finished(cluster, stays)

        for _, state in cluster.states():
            pushed = state.table["clocks"]["worker-1"]
            assert pushed["clock"] == 3
            assert 2 * STEPS * 9 < pushed["examples"] < 3 * STEPS * 9


def test_a_run_that_stops_as_a_whole_pushes_no_part_of_a_round(tmp_path: Path) -> None:
    settings = {"policy": {"name": "local_sgd", "steps": STEPS}, "optimizer": COUNTING, "batch_size": 10}
    with Cluster(tmp_path, epochs=ENDLESS, **settings) as cluster:
        workers = started(cluster, 2)
        for worker in workers:
            worker.send(signal.SIGTERM)
        assert [worker.wait() for worker in workers] == [143, 143]
        cluster.end_servers(143)

        for _, state in cluster.states():
            clocks = state.table["clocks"].values()
            assert [clock["clock"] for clock in clocks] == [2, 2]
            assert state.table["pushes"] == 4
