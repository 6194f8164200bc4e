"""Servers whose folders are lost go on from the object store (checkpoint.at); in lock-step with the same bits."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("moto", reason="moto is not installed: make setup")

from tests.runs.test_lock_step_bits import SETTINGS as LOCK_STEP
from tests.runs.test_lock_step_bits import begun, end, goes_on, resumed, undisturbed
from tests.support.nights import some
from tests.support.object_store import ObjectStore, object_store
from tests.support.processes import Cluster

FETCHED = "fetched snapshots from the store"


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {})
        yield found


@pytest.fixture(autouse=True)
def variables(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is started."""
    store.set_variables(monkeypatch)


def settings(folder: Path, **more: Any) -> dict[str, Any]:
    """Those of a run in lock-step, with a folder in the store by itself."""
    return LOCK_STEP | {"checkpoint": {"every": 0.5, "at": f"s3://mine/{folder.name}"}} | more


def lose(cluster: Cluster, index: int) -> None:
    """Removes a server's folder, once the store has a snapshot with what was trained."""
    shutil.rmtree(cluster.folder / f"s{index}")


def all_lost(cluster: Cluster) -> tuple[str, ...]:
    servers, workers = begun(cluster)
    goes_on(cluster)
    for process in (*servers, *workers):
        process.kill()
    for index in range(2):
        lose(cluster, index)
    return end(cluster, resumed(cluster))


def one_after_the_other_lost(cluster: Cluster) -> tuple[str, ...]:
    servers, workers = begun(cluster)
    for index in (1, 0, 1):
        goes_on(cluster)
        servers[index].kill()
        lose(cluster, index)
        servers[index] = cluster.listening(index, cluster.server(index))
    return end(cluster, workers)


def lost_with_a_worker(cluster: Cluster) -> tuple[str, ...]:
    """Its pushes are lost with it, so that all servers go back to a version that each has in the store."""
    servers, workers = begun(cluster)
    for index in (1, 0):
        goes_on(cluster)
        servers[index].kill()
        workers[index].kill()
        lose(cluster, index)
        workers[index] = cluster.worker(index)
        servers[index] = cluster.listening(index, cluster.server(index))
    return end(cluster, workers)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """The slices of a run to which nothing happens, without a store."""
    with Cluster(tmp_path_factory.mktemp("undisturbed"), **LOCK_STEP) as cluster:
        return undisturbed(cluster)


@pytest.mark.parametrize("disturbed", some((all_lost, one_after_the_other_lost, lost_with_a_worker), [all_lost]))
def test_lock_step_has_the_same_bits_after_folders_were_lost(
    disturbed: Callable[[Cluster], tuple[str, ...]], expected: tuple[str, ...], tmp_path: Path
) -> None:
    with Cluster(tmp_path, **settings(tmp_path)) as cluster:
        found = disturbed(cluster)
        logs = "\n".join(f"{process.name}:\n{process.text()}" for process in cluster.processes)
        fetches = sum(len(process.events(FETCHED)) for process in cluster.processes)

    assert found == expected, logs
    assert fetches >= 2
