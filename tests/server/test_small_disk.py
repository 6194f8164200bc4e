"""A real disk that is full, or may only be read: a mount of this test's own, where it may make one."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from paceline.core.values import Base, Dense, Push, Seat, View
from tests.server.test_snapshots import OneServer


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
    assert newest is not None
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
    assert found is not None
    assert found[1].weights.tolist() == [1.0] * 9
    again.store.close()
