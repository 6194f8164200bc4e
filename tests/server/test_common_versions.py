"""Two servers in lock-step: snapshots at the same versions, and both go back to one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.slice.plan import make_plan
from paceline.core.slice.state import SliceState
from paceline.server.common_versions import CommonVersions
from paceline.server.metrics import ServerMetrics
from paceline.server.slice_driver import SliceDriver
from paceline.server.state_folder import StateFolder
from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import Cluster, Context, Pusher, Said, config_of
from tests.support.processes import eventually

CONFIG = config_of("bsp", servers=2)
PLAN = make_plan((("a.weight", (3, 2)), ("a.bias", (3,))), 1, CONFIG.plan)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(config_of("bsp", servers=2, epochs=99, checkpoint={"every": 0.05}), tmp_path)
    yield made
    made.close()


def begun(cluster: Cluster) -> Pusher:
    cluster.evaluator_ready()
    return Pusher(cluster).join().sit()


def common(cluster: Cluster) -> int:
    """The newest version that both servers have on disk, as the chief knows it."""
    chief = cluster.servers[0].chief
    with chief.changed:
        return chief.run.common_snapshots.newest or 0


def trained_beyond(cluster: Cluster, pusher: Pusher, version: int) -> int:
    """Trains until a newer version is common, and a round more; returns the common one."""

    def found() -> int | None:
        pusher.push(1.0)
        return common(cluster) if common(cluster) > version else None

    reached = eventually(found, "a common snapshot")
    pusher.push(1.0)
    return reached


def test_servers_in_lock_step_write_snapshots_at_the_same_versions_only(cluster: Cluster) -> None:
    pusher = begun(cluster)

    first = trained_beyond(cluster, pusher, 0)
    second = trained_beyond(cluster, pusher, first)

    kept = [server.folder.round_versions() for server in cluster.servers]
    assert {first, second} <= kept[0] & kept[1]
    assert max(kept[0] ^ kept[1], default=0) not in range(1, second)


def test_the_chiefs_slice_waits_before_each_version_that_it_names(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    chief, driver, held = cluster.servers[0].chief, cluster.servers[0].driver, list[int]()

    def hold(first: int) -> None:
        held.append(first)
        SliceDriver.keep_rounds_open(driver, first)

    monkeypatch.setattr(driver, "keep_rounds_open", hold)
    begun(cluster)

    eventually(lambda: chief.run.common_snapshots.due in held, "a round that stays open")


def test_all_go_back_to_the_newest_common_snapshot_under_new_terms(cluster: Cluster) -> None:
    pusher = begun(cluster)
    version = trained_beyond(cluster, pusher, 0)

    assert pusher.chief.go_back(pusher.incarnation, [1, 1]) is True
    standings = pusher.client.attach(pusher.incarnation)

    assert [standing.term for standing in standings] == [2, 2]
    (reached,) = {standing.version for standing in standings}
    assert version <= reached <= pusher.clock
    assert [standing.clock for standing in standings] == [reached, reached]
    status = cluster.run.Status(pb.StatusRequest(), Context())
    assert (status.went_back, status.back_to, status.going_back) == (1, reached, False)
    assert [(each.term, each.start.term, each.start.is_back) for each in status.servers] == [(2, 1, False)] * 2
    assert [cluster.metric("recoveries_total", n) for n in (0, 1)] == [1, 1]


def test_training_goes_on_after_that_and_each_clock_counts_once(cluster: Cluster) -> None:
    pusher = begun(cluster)
    trained_beyond(cluster, pusher, 0)
    pusher.chief.go_back(pusher.incarnation, [1, 1])

    pusher.clock = min(standing.clock for standing in pusher.client.attach(pusher.incarnation))
    pusher.client.start_after(pusher.clock)
    pusher.sit()
    for _ in range(5):
        pusher.push(1.0)

    assert (pusher.model == -pusher.clock).all()


def test_a_worker_that_looked_before_a_server_came_back_only_has_to_look_again(cluster: Cluster) -> None:
    pusher = begun(cluster)
    trained_beyond(cluster, pusher, 0)

    pusher.chief.go_back(pusher.incarnation, [1, 1])
    again = pusher.chief.go_back(pusher.incarnation, [1, 1])

    assert again is True
    assert [standing.term for standing in pusher.client.attach(pusher.incarnation)] == [2, 2]


def test_a_push_is_safe_once_all_servers_have_a_snapshot_of_it(cluster: Cluster) -> None:
    pusher = begun(cluster)

    version = trained_beyond(cluster, pusher, 0)

    def durable() -> list[int] | None:
        found = [standing.durable for standing in pusher.client.attach(pusher.incarnation)]
        assert max(found) <= common(cluster)
        return found if min(found) >= version else None

    assert eventually(durable, "both servers know what is common")


def test_servers_that_have_gone_back_come_back_there_after_a_restart(cluster: Cluster) -> None:
    pusher = begun(cluster)
    trained_beyond(cluster, pusher, 0)
    pusher.chief.go_back(pusher.incarnation, [1, 1])
    (reached,) = {standing.version for standing in pusher.client.attach(pusher.incarnation)}

    cluster.restart(1)

    standings = pusher.client.attach(pusher.incarnation)
    assert [standing.version for standing in standings] == [reached, reached]
    assert [standing.term for standing in standings] == [2, 3]


class Store:
    """Says which numbers are safe, as `Snapshots` does."""

    def __init__(self) -> None:
        self.safe_numbers: frozenset[int] | None = None


def test_what_all_servers_had_while_the_store_was_away_stays_once_the_store_is_back(tmp_path: Path) -> None:
    folder, store = StateFolder(tmp_path, 2, Said()), Store()
    driver = SliceDriver(CONFIG, 0, folder.term, ServerMetrics(CollectorRegistry(), "bsp"))
    versions = CommonVersions(driver, folder, cast(Any, store), Said())
    for version in (1, 2, 3):
        save(folder, version)
        versions.heard(0, 2 if version > 1 else 0)
    assert versions.durable == [2, 3]

    store.safe_numbers = frozenset({3})
    versions.heard(0, 0)
    for version in (4, 5, 6):
        save(folder, version)
    assert versions.durable == [2], "the chief may still let all go back to it"

    versions.heard(0, 6)
    save(folder, 7)
    store.safe_numbers = frozenset({6, 7})
    assert (versions.durable, folder.versions) == ([6, 7], [6, 7])
    folder.close()


def save(folder: StateFolder, version: int) -> None:
    table = {"version": version, "pushes": version, "examples": version, "clocks": {}, "policy": {}, "rounds": True}
    folder.save_snapshot(PLAN, SliceState(np.full(9, version, np.float32), [], table))
