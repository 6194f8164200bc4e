"""What a chaos round takes from a killed server's folder: all that was not synced, and nothing else."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.chaos.power import NotedDisk, lose_power


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A server's, as an earlier one left it."""
    folder = tmp_path / "s0"
    folder.mkdir()
    (folder / "lock").touch()
    (folder / "term.json").write_bytes(b"1")
    return folder


def put(disk: NotedDisk, path: Path, raw: bytes, *, syncs: bool) -> None:
    """Replaces a file, as far as its name."""
    waiting = path.with_suffix(".tmp")
    file = disk.create(waiting)
    disk.append(file, raw)
    if syncs:
        disk.sync(file)
    disk.close(file)
    disk.rename(waiting, path)


def found(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_was_synced_with_its_name_stays(folder: Path) -> None:
    disk = NotedDisk.of(folder)
    put(disk, folder / "term.json", b"2", syncs=True)
    disk.sync_folder(folder)
    before = found(folder)

    assert lose_power(folder, are_names_kept=False) == 0
    assert found(folder) == before == {"lock": b"", "term.json": b"2"}


def test_a_name_that_was_not_synced_goes_or_stays(folder: Path) -> None:
    disk = NotedDisk.of(folder)
    put(disk, folder / "term.json", b"2", syncs=True)

    assert lose_power(folder, are_names_kept=True) == 0
    assert found(folder)["term.json"] == b"2"
    assert lose_power(folder, are_names_kept=False) == 1
    assert found(folder)["term.json"] == b"1"


def test_content_that_was_not_synced_goes_also_where_its_name_stays(folder: Path) -> None:
    disk = NotedDisk.of(folder)
    put(disk, folder / "term.json", b"2", syncs=False)
    disk.sync_folder(folder)

    lose_power(folder, are_names_kept=True)

    assert found(folder)["term.json"] == b""


def test_a_removal_that_was_not_synced_is_undone(folder: Path) -> None:
    NotedDisk.of(folder).unlink(folder / "term.json")

    assert found(folder) == {"lock": b""}
    assert lose_power(folder, are_names_kept=False) == 1
    assert found(folder)["term.json"] == b"1"


def test_a_server_that_has_changed_nothing_loses_nothing(folder: Path) -> None:
    assert lose_power(folder, are_names_kept=False) == 0
    assert found(folder)["term.json"] == b"1"


def test_two_threads_of_a_server_may_write_at_once(folder: Path) -> None:
    disk = NotedDisk.of(folder)

    def write(name: str) -> None:
        for number in range(100):
            put(disk, folder / f"{name}-{number}", b"1", syncs=True)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(write, ("run", "snapshot")))

    assert lose_power(folder, are_names_kept=True) == 0
