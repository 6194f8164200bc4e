"""Snapshots during training: when they are written, and what becomes of them on a disk that fails."""

import errno
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.policies.clocks import Entry
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import make_plan
from paceline.core.values import Base, Dense, Push, Seat, View
from paceline.server import snapshots
from paceline.server.metrics import ServerMetrics
from paceline.server.own_figures import OwnFigures
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots, snapshot_pause
from paceline.server.state_folder import StateFolder
from tests.support.disks import FailingDisk
from tests.support.in_process import Said
from tests.support.own_time import own_time

SHAPES = (("a.weight", (3, 2)), ("a.bias", (3,)))
CONFIG = Config(workers=1, servers=1, policy=Options(name="asp"))
PLAN = make_plan(SHAPES, 1, CONFIG.plan)


class OneServer:
    """A slice with its snapshots, on a disk that may fail."""

    def __init__(self, folder: Path, every: float | None = None, disk: FailingDisk | None = None) -> None:
        self.registry = CollectorRegistry()
        self.said = Said()
        self.folder = folder
        metrics = ServerMetrics(self.registry, "asp")
        self.driver = SliceDriver(CONFIG, 0, 1, metrics)
        self.driver.adopt(SHAPES, PLAN.hash, "worker-0")
        self.driver.initialise(np.ones(9, np.float32), b"first")
        self.disk = disk or FailingDisk(errno.ENOSPC, ())
        self.store = StateFolder(folder, 3, self.said, disk=self.disk)
        self.snapshots = Snapshots(self.driver, self.store, every, metrics, self.said)

    def metric(self, name: str) -> float:
        return self.registry.get_sample_value(f"paceline_server_{name}") or 0.0

    @property
    def kept(self) -> int:
        return len(list(self.folder.glob("snapshot-*.json")))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[OneServer]:
    found = OneServer(tmp_path)
    yield found
    found.store.close()


def test_a_server_that_ends_without_its_last_state_on_the_disk_says_so(server: OneServer) -> None:
    server.disk.fails = ["append"]
    server.snapshots.close()

    event, facts = list(server.said)[-1]
    assert event == "the last state is not on the disk"
    assert os.strerror(errno.ENOSPC) in facts["why"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_training_goes_on_with_one_alarm_while_the_disk_fails_and_snapshots_come_back(
    server: OneServer, error: int
) -> None:
    server.disk.error, server.disk.fails = error, ["append"]
    for _ in range(3):
        server.snapshots.write_now()
    assert server.metric("checkpoint_failures_total") == 3
    figures = OwnFigures(server.driver, server.snapshots)
    assert os.strerror(error) in figures.message().disk_trouble
    assert [event for event, _ in server.said] == ["snapshot failed; training goes on"]
    server.disk.fails = ()
    for _ in range(2):
        server.snapshots.write_now()
    assert [event for event, _ in server.said][1:] == ["snapshots are written again"]
    assert not figures.message().disk_trouble
    assert server.metric("checkpoint_timestamp_seconds") > 0
    assert server.kept == 1


def test_only_what_is_on_disk_is_called_durable(server: OneServer) -> None:
    clocks = server.driver.clocks
    clocks.table["worker-0"] = Entry(clock=3)
    server.disk.fails = ["sync"]
    server.snapshots.write_now()
    assert clocks.durable == {}

    server.disk.fails = ()
    server.snapshots.write_now()
    assert clocks.durable == {"worker-0": 3}


def test_another_trouble_with_the_disk_is_told_too(server: OneServer) -> None:
    server.disk.fails = ["sync"]
    for error in (errno.ENOSPC, errno.ENOSPC, errno.EIO):
        server.disk.error = error
        server.snapshots.write_now()
    assert [event for event, _ in server.said] == ["snapshot failed; training goes on"] * 2
    assert ["No space" in facts["why"] for _, facts in server.said] == [True, False]


def test_a_try_that_fails_puts_the_next_one_off_too(server: OneServer, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([0.0, 4.0, 4.0])
    server.disk.fails = ["append"]
    own_time(monkeypatch, snapshots, monotonic=lambda: next(times))
    server.snapshots.write_now()
    assert server.snapshots.pause == 8.0


def test_without_memory_for_a_snapshot_training_goes_on_and_the_next_one_is_tried(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("paceline.server.slice_snapshots.np.full", raising(MemoryError("Unable to allocate 90 MiB")))
        server.snapshots.write_now()
    server.snapshots.write_now()
    assert [event for event, _ in server.said] == ["snapshot failed; training goes on", "snapshots are written again"]
    assert server.said[0][1] == {"why": "Unable to allocate 90 MiB"}


def test_a_state_that_cannot_be_written_at_all_ends_the_server_and_leaves_nothing_half_written(
    server: OneServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = TypeError("Object of type float32 is not JSON serializable")  # of a user's policy, say
    with monkeypatch.context() as patch:
        patch.setattr(server.store, "save_snapshot", raising(broken))
        assert not server.snapshots.write_now()
    assert server.driver.failure is broken
    assert not server.snapshots.write_now()
    server.snapshots.close()
    assert server.kept == 0


def test_who_asks_for_a_snapshot_learns_whether_it_is_on_disk(server: OneServer) -> None:
    server.disk.error, server.disk.fails = errno.ENOSPC, ["append"]
    assert not server.snapshots.write_now()
    server.disk.fails = ()
    assert [server.snapshots.write_now() for _ in range(2)] == [True, True]


def raising(error: BaseException) -> Callable[..., None]:
    def fails(*arguments: object) -> None:
        raise error

    return fails


class SlowDisk(FailingDisk):
    """Waits before it renames, until it may go on."""

    def __init__(self) -> None:
        super().__init__(0, ())
        self.reached, self.may_go_on = Event(), Event()

    def rename(self, before: Path, after: Path) -> None:
        self.reached.set()
        self.may_go_on.wait(60)
        super().rename(before, after)


def test_the_end_waits_for_a_snapshot_that_is_being_written(tmp_path: Path) -> None:
    disk = SlowDisk()
    disk.may_go_on.set()
    server = OneServer(tmp_path, 0.01, disk)
    disk.may_go_on.clear()
    disk.reached.clear()
    server.snapshots.start()
    assert disk.reached.wait(60)
    ending = Thread(target=server.snapshots.close)
    ending.start()
    assert server.kept == 0
    disk.may_go_on.set()
    ending.join(60)
    assert (ending.is_alive(), server.kept) == (False, 1)
    server.store.close()


def test_the_metric_says_the_pause_that_follows_from_what_the_last_one_took(server: OneServer) -> None:
    assert server.metric("checkpoint_interval_seconds") == 1
    server.snapshots.write_now()
    assert 1 <= server.metric("checkpoint_interval_seconds") == server.snapshots.pause <= 30


def test_a_setting_is_the_interval(tmp_path: Path) -> None:
    server = OneServer(tmp_path, 60.0)
    server.snapshots.write_now()
    assert server.metric("checkpoint_interval_seconds") == 60
    server.store.close()


def mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True, check=False).returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if not mount("-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)):
        pytest.skip("only root may mount a disk")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def push(server: OneServer, clock: int) -> None:
    update = Dense(np.ones(9, np.float32))
    assert server.driver.push(Push("worker-0", 1, clock, update, 1, Base(1, 0), 1, 0.0), None, lambda: True) is not None


def test_on_a_full_disk_pushes_go_on_and_snapshots_come_back(disk: Path) -> None:
    server = OneServer(disk)
    server.driver.view(View(1, {"worker-0": Seat(1, 0)}))
    server.snapshots.write_now()
    filler = disk / "filler"
    with pytest.raises(OSError, match="No space"):
        filler.write_bytes(b"x" * (1 << 20))
    push(server, 1)
    server.snapshots.write_now()
    filler.unlink()
    server.snapshots.write_now()

    failed, back = "snapshot failed; training goes on", "snapshots are written again"
    assert [event for event, _ in server.said] == [failed, back]
    assert "No space" in server.said[0][1]["why"]
    assert not list(disk.glob("*.tmp"))
    newest = server.store.newest_snapshot()
    assert newest[1].table["version"] == 1
    server.store.close()


@pytest.mark.parametrize("trouble", ["full", "read-only"])
def test_a_server_starts_on_a_disk_that_takes_nothing_and_goes_on_from_its_snapshot(disk: Path, trouble: str) -> None:
    first = OneServer(disk)
    first.snapshots.write_now()
    first.store.close()
    if trouble == "full":
        with pytest.raises(OSError, match="No space"):
            (disk / "filler").write_bytes(b"x" * (1 << 20))
    else:
        assert mount("-o", "remount,ro", str(disk))

    again = OneServer(disk)

    assert again.said.has("can't keep the term; it is taken from the clock")
    found = again.store.newest_snapshot()
    assert found[1].weights.tolist() == [1.0] * 9
    again.store.close()


@pytest.mark.parametrize(
    ("took", "pause"), [(None, 1.0), (0.0, 1.0), (0.4, 1.0), (0.6, 1.2), (12.0, 24.0), (15.0, 30.0), (600.0, 30.0)]
)
def test_without_a_setting_it_is_twice_what_the_last_one_took_from_1_to_30_s(took: float | None, pause: float) -> None:
    assert snapshot_pause(None, took) == pytest.approx(pause)


@pytest.mark.parametrize(("sent_in", "pause"), [(0.0, 2.0), (0.5, 6.5), (60.0, 30.0)])
def test_a_server_sends_to_its_store_for_a_tenth_of_the_time_at_most(sent_in: float, pause: float) -> None:
    assert snapshot_pause(None, 1.0, sent_in) == pytest.approx(pause)


@pytest.mark.parametrize("took", [None, 0.1, 50.0])
def test_a_setting_holds_whatever_it_takes(took: float | None) -> None:
    assert snapshot_pause(5.0, took) == 5.0
