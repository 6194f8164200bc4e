"""In lock-step the final slices have the same bits, no matter what is killed, stopped and resumed on the way
(docs/understand/recovery.md)."""

import hashlib
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline.rpc.enums import phase_of
from tests.runs.test_processes import saved
from tests.support.nights import some
from tests.support.processes import Cluster, Process, eventually

SETTINGS: dict[str, Any] = {
    "workers": 4,
    "servers": 2,
    "on_lost_worker": "wait",
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.001},
    "epochs": 18,
    "batch_size": 32,
    "checkpoint": {"every": 0.5},
    "heartbeat": 0.3,
    "lease": 4,
    "slow": {"all": "1.5x"},
}
ROUNDS = 35
"""Rounds between two disturbances."""
MORE = 10
"""Rounds beyond these to which workers may come before they are held."""
BEYOND = "some servers have more rounds than others, and nobody has their pushes"


def slices(cluster: Cluster) -> tuple[str, ...]:
    """A digest of each server's final slice: version, weights, momentum."""
    found = []
    for _, state in cluster.states():
        digest = hashlib.sha256(str(state.table["version"]).encode())
        for values in (state.weights, *state.slots):
            digest.update(values.tobytes())
        found.append(f"{state.table['version']} {digest.hexdigest()}")
    return tuple(found)


def worker_of(cluster: Cluster, rank: int) -> Process:
    if cluster.settings.get("updates") == "sparse":
        return cluster.worker(rank, torch=True)
    return cluster.worker(rank)


def workers_of(cluster: Cluster) -> list[Process]:
    return [worker_of(cluster, rank) for rank in range(4)]


def begun(cluster: Cluster) -> tuple[list[Process], list[Process]]:
    """Servers and workers of a run that trains."""
    cluster.hold(MORE)
    sharder, servers = cluster.sharder(), cluster.servers()
    assert sharder.wait() == 0
    workers = workers_of(cluster)
    cluster.ready()
    return servers, workers


def goes_on(cluster: Cluster) -> None:
    """Waits until more rounds are over; the run must not be at its end by then."""
    before = cluster.until(lambda status: phase_of(status) == "training").version
    go_further(cluster, ROUNDS + MORE)
    after = cluster.until(lambda status: status.version > before + ROUNDS or phase_of(status) != "training")
    assert phase_of(after) == "training", "the run is too short for what is done to it"


def go_further(cluster: Cluster, rounds: int) -> None:
    """Holds the workers that many rounds later."""
    assert cluster.held_at is not None
    cluster.hold(cluster.held_at + rounds)


def has_unsaved(cluster: Cluster, index: int) -> None:
    """Waits until the server has rounds that are not in its snapshot."""

    def found() -> bool:
        go_further(cluster, 1)  # where workers are held, servers have the time to save all
        status = cluster.status()
        return status is not None and status.version > saved(cluster.folder / f"s{index}") + 3

    eventually(found, "rounds that are not saved")


def end(cluster: Cluster, workers: list[Process]) -> tuple[str, ...]:
    """The slices at the end of the run."""
    cluster.hold(None)
    assert [worker.wait() for worker in workers] == [0] * 4
    cluster.finish()
    return slices(cluster)


def undisturbed(cluster: Cluster) -> tuple[str, ...]:
    _, workers = begun(cluster)
    return end(cluster, workers)


def three_server_kills(cluster: Cluster) -> tuple[str, ...]:
    servers, workers = begun(cluster)
    for index in (1, 0, 1):
        goes_on(cluster)
        servers[index].kill()
        servers[index] = cluster.listening(index, cluster.server(index))
    return end(cluster, workers)


def three_worker_kills(cluster: Cluster) -> tuple[str, ...]:
    _, workers = begun(cluster)
    for rank in (3, 0, 3):
        goes_on(cluster)
        workers[rank].kill()
        workers[rank] = worker_of(cluster, rank)
    return end(cluster, workers)


def servers_killed_with_a_worker(cluster: Cluster) -> tuple[str, ...]:
    """The worker's pushes are lost with it, so that all servers go back to a common snapshot."""
    servers, workers = begun(cluster)
    for index in (1, 0):
        goes_on(cluster)
        has_unsaved(cluster, index)
        servers[index].kill()
        workers[index].kill()
        workers[index] = worker_of(cluster, index)
        servers[index] = cluster.listening(index, cluster.server(index))
    found = end(cluster, workers)
    assert sum(len(worker.events(BEYOND)) for worker in workers) >= 1
    return found


def stopped_and_resumed(cluster: Cluster) -> tuple[str, ...]:
    """As Ctrl-C does: workers hear it first, servers as soon as these are gone."""
    _, workers = begun(cluster)
    goes_on(cluster)
    for worker in workers:
        worker.send(signal.SIGTERM)
    assert [worker.wait() for worker in workers] == [143] * 4
    cluster.end_servers(143)
    return end(cluster, resumed(cluster))


def all_killed_and_resumed(cluster: Cluster) -> tuple[str, ...]:
    servers, workers = begun(cluster)
    goes_on(cluster)
    for process in (servers[0], workers[0], workers[1], servers[1], workers[2], workers[3]):
        process.kill()
    return end(cluster, resumed(cluster))


DISTURBED = (
    three_server_kills,
    three_worker_kills,
    servers_killed_with_a_worker,
    stopped_and_resumed,
    all_killed_and_resumed,
)


def resumed(cluster: Cluster) -> list[Process]:
    """New processes in the same folders."""
    for index in range(2):
        cluster.listening(index, cluster.server(index))
    workers = workers_of(cluster)
    cluster.ready()
    return workers


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The slices of a run to which nothing happens."""
    with Cluster(tmp_path_factory.mktemp("undisturbed"), **SETTINGS) as cluster:
        return undisturbed(cluster)


@pytest.mark.parametrize("disturbed", some(DISTURBED, [all_killed_and_resumed]))
def test_the_slices_have_the_same_bits(
    disturbed: Callable[[Cluster], tuple[str, ...]], expected: tuple[str, ...], tmp_path: Path
) -> None:
    with Cluster(tmp_path, **SETTINGS) as cluster:
        found = disturbed(cluster)
        logs = "\n".join(f"{process.name}:\n{process.text()}" for process in cluster.processes)

    assert found == expected, logs
