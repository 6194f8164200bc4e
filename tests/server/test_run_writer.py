"""The run's state on the chief's disk: training does not wait for it, and nobody learns of a change before it is written."""

import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from paceline.core.errors import TryAgain
from paceline.server import run_writer
from paceline.server.disk import Disk
from paceline.v1 import parameter_service_pb2
from paceline.v1 import run_service_pb2 as pb
from tests.support.in_process import Cluster, Context, Pusher, config_of, seated
from tests.support.processes import eventually

CALL = Context()


class SlowDisk:
    """Takes the run's state when the test lets it, and everything else at once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.works = threading.Event()
        self.works.set()
        self.renamed: list[str] = []
        write, rename = Disk.write, Disk.rename

        def written(disk: Disk, path: Path, parts: Iterable[bytes | memoryview]) -> None:
            if path.name.startswith("run.json"):
                self.works.wait(60)
            write(disk, path, parts)

        def renamed(disk: Disk, before: Path, after: Path) -> None:
            self.renamed.append(after.name)
            rename(disk, before, after)

        monkeypatch.setattr(Disk, "write", written)
        monkeypatch.setattr(Disk, "rename", renamed)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    made = SlowDisk(monkeypatch)
    yield made
    made.works.set()


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as made:
        yield made


@pytest.fixture
def cluster(tmp_path: Path, disk: SlowDisk) -> Iterator[Cluster]:
    config = config_of(workers=2, checkpoint={"every": 3600})
    with closing(Cluster(config, tmp_path)) as made:
        yield made
        disk.works.set()


def report(cluster: Cluster, pusher: Pusher) -> pb.ValidatedReply:
    request = pb.ValidatedRequest(worker=pusher.name, incarnation=pusher.incarnation, epoch=0, loss=0.5, examples=10)
    return cluster.run.Validated(request, CALL)


def test_pushes_are_answered_while_a_report_waits_for_the_disk(
    cluster: Cluster, disk: SlowDisk, threads: ThreadPoolExecutor
) -> None:
    first, second = seated(cluster)
    disk.works.clear()
    waiting = threads.submit(report, cluster, second)
    for _ in range(3):
        assert first.push(1.0)[0].outcome == parameter_service_pb2.OUTCOME_FOLDED
    assert not waiting.done()

    disk.works.set()
    assert waiting.result(timeout=60) == pb.ValidatedReply()


def test_answers_and_snapshots_wait_until_the_view_that_they_follow_is_kept(
    cluster: Cluster, disk: SlowDisk, threads: ThreadPoolExecutor
) -> None:
    first, second = seated(cluster)
    server = cluster.servers[0]
    assert server.chief is not None
    before, counted = server.chief.membership.view.number, server.driver.counted
    disk.works.clear()
    disk.renamed.clear()
    left = threads.submit(cluster.run.Leave, pb.LeaveRequest(worker=second.name, incarnation=second.incarnation), CALL)
    eventually(lambda: server.driver.clocks.view.number > before)
    push = threads.submit(first.push, 1.0)
    eventually(lambda: server.driver.counted > counted)
    snapshot = threads.submit(server._snapshots.write_now)
    eventually(lambda: server.driver._is_taking)
    assert server.driver.pull(None, lambda: True) is not None, "weights say nothing of the view"
    assert not any(one.done() for one in (left, push, snapshot))

    disk.works.set()
    assert push.result(timeout=60)[0].outcome == parameter_service_pb2.OUTCOME_FOLDED
    left.result(timeout=60)
    assert snapshot.result(timeout=60)
    assert disk.renamed[0] == "run.json"
    assert any(name.startswith("snapshot") for name in disk.renamed[1:])


def test_who_waits_for_a_disk_that_hangs_is_asked_to_try_again(
    cluster: Cluster, disk: SlowDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, second = seated(cluster)
    disk.works.clear()
    monkeypatch.setattr(run_writer, "LONGEST_WAIT", 0.01)
    with pytest.raises(TryAgain, match="look at the disk"):
        report(cluster, second)
