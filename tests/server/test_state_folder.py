"""The server's folder: whatever happens to it, nothing damaged or half-written is taken for whole."""

import errno
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.settings.config import Config, Options
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.state import SliceState
from paceline.server import state_folder as folder_module
from paceline.server.metrics import ServerMetrics
from paceline.server.slice_driver import SliceDriver
from paceline.server.snapshots import Snapshots
from paceline.server.state_folder import StateFolder

SHAPES = (("a.weight", (3, 2)), ("a.bias", (3,)))
CONFIG = Config(workers=1, servers=1, policy=Options(name="asp"))
PLAN = make_plan(SHAPES, 1, CONFIG.plan)


class Said(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, **facts: Any) -> None:
        self.append((event, facts))


def state_at(version: int) -> SliceState:
    table = {"version": version, "pushes": version, "examples": version, "clocks": {}, "policy": {}}
    return SliceState(np.full(9, version, np.float32), [np.full(9, -version, np.float32)], table)


def filled(folder: Path, versions: int, said: Said | None = None) -> StateFolder:
    store = StateFolder(folder, keep=3, say=said if said is not None else Said())
    for version in range(1, versions + 1):
        store.save_snapshot(PLAN, state_at(version))
    return store


def found(folder: Path, said: Said) -> tuple[SlicePlan, SliceState] | None:
    store = StateFolder(folder, keep=3, say=said)
    try:
        return store.newest_snapshot()
    finally:
        store.close()


def test_a_snapshot_comes_back_as_it_was(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    newest = found(tmp_path, Said())
    assert newest is not None
    plan, state = newest
    assert plan == PLAN
    assert (state.weights.tolist(), state.slots[0].tolist()) == ([2.0] * 9, [-2.0] * 9)
    assert state.table == state_at(2).table


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    names = sorted(path.name for path in tmp_path.glob("snapshot-*"))
    assert names == [f"snapshot-{n:012d}.{kind}" for n in (3, 4, 5) for kind in ("json", "safetensors")]


def test_an_empty_folder_has_no_snapshot(tmp_path: Path) -> None:
    assert found(tmp_path, Said()) is None


def test_terms_grow_with_every_start(tmp_path: Path) -> None:
    terms = []
    for _ in range(3):
        store = StateFolder(tmp_path, 3, Said())
        terms.append(store.term)
        store.close()
    assert terms == [1, 2, 3]


def test_two_servers_cannot_use_one_folder(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, 3, Said())
    with pytest.raises(ConfigError, match="Another server"):
        StateFolder(tmp_path, 3, Said())
    store.close()


def test_200_damages_of_the_newest_snapshot_are_found_and_said(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    filled(tmp_path / "whole", 3).close()
    newest = [f"snapshot-{3:012d}.safetensors", f"snapshot-{3:012d}.json"]
    for trial in range(200):
        folder = tmp_path / "damaged"
        shutil.copytree(tmp_path / "whole", folder)
        victim = folder / newest[trial % 2]
        content = bytearray(victim.read_bytes())
        kind = trial % 3
        place = int(rng.integers(1, len(content) - 1))  # the last byte of a manifest is a newline that nobody reads
        if kind == 0:
            content[place] ^= 1 << int(rng.integers(8))
            victim.write_bytes(content)
        elif kind == 1:
            victim.write_bytes(content[:place])
        elif victim.suffix == ".safetensors":
            victim.unlink()
        else:
            victim.write_bytes(content[place:] + content[:place])
        said = Said()
        loaded = found(folder, said)
        assert loaded is not None
        assert loaded[1].weights.tolist() == [2.0] * 9, (trial, victim.name)
        assert any("damaged" in event for event, _ in said)
        shutil.rmtree(folder)


def test_a_missing_manifest_means_there_was_no_such_snapshot(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / f"snapshot-{3:012d}.json").unlink()
    loaded = found(tmp_path, Said())
    assert loaded is not None
    assert loaded[1].weights.tolist() == [2.0] * 9


def test_when_every_snapshot_is_damaged_the_run_does_not_start_from_nothing(tmp_path: Path) -> None:
    filled(tmp_path, 2).close()
    for path in tmp_path.glob("*.safetensors"):
        path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(DataError, match="None of the 2 snapshots"):
        found(tmp_path, Said())


def test_what_an_interrupted_write_left_is_removed_and_said(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    leftovers = ["snapshot-000000000002.tmp", "run.json.tmp", "snapshot-000000000002.safetensors"]
    for name in leftovers:
        (tmp_path / name).write_bytes(b"half")
    said = Said()
    loaded = found(tmp_path, said)
    assert loaded is not None
    assert loaded[1].weights.tolist() == [1.0] * 9
    assert sorted(facts["file"] for _, facts in said) == sorted(leftovers)
    assert not [name for name in leftovers if (tmp_path / name).exists()]


def test_foreign_files_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "snapshot-of-mine.json").write_text("{}")
    filled(tmp_path, 1).close()
    assert found(tmp_path, Said()) is not None
    assert (tmp_path / "snapshot-of-mine.json").exists()


@pytest.mark.parametrize("name", ["term.json", "run.json"])
@pytest.mark.parametrize("damage", [b"", b"\xff\xfe", b'{"term": 7}\n0000\n'])
def test_a_damaged_table_is_refused(tmp_path: Path, name: str, damage: bytes) -> None:
    store = StateFolder(tmp_path, 3, Said())
    store.save_run({"phase": "training"})
    store.close()
    (tmp_path / name).write_bytes(damage)
    with pytest.raises(DataError, match="damaged"):
        StateFolder(tmp_path, 3, Said()).load_run()


def test_a_folder_that_cannot_be_made_is_a_disk_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DiskError, match="place to write"):
        StateFolder(tmp_path / "file" / "folder", 3, Said())


def full(*arguments: Any) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_leaves_the_older_snapshots_intact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 1)
    for name in ("save_file", "_sync", "_digest"):
        with monkeypatch.context() as patch:
            patch.setattr(folder_module, name, full)
            with pytest.raises(DiskError, match="write"):
                store.save_snapshot(PLAN, state_at(2))
    store.close()
    loaded = found(tmp_path, Said())
    assert loaded is not None
    assert loaded[1].weights.tolist() == [1.0] * 9
    assert not list(tmp_path.glob("*.tmp"))


def test_training_goes_on_with_an_alarm_while_the_disk_is_full_and_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry, said = CollectorRegistry(), Said()
    metrics = ServerMetrics(registry, "asp")
    driver = SliceDriver(CONFIG, 0, 1, metrics)
    driver.adopt(SHAPES, PLAN.hash, "worker-0")
    driver.initialise(np.ones(9, np.float32), b"first")
    snapshots = Snapshots(driver, StateFolder(tmp_path, 3, said), 5.0, metrics, said)
    with monkeypatch.context() as patch:
        patch.setattr(folder_module, "save_file", full)
        snapshots.write_now()
    assert registry.get_sample_value("paceline_server_checkpoint_failures_total") == 1
    assert "training goes on" in said[-1][0]
    snapshots.write_now()
    assert (registry.get_sample_value("paceline_server_checkpoint_timestamp_seconds") or 0) > 0
    assert len(list(tmp_path.glob("snapshot-*.json"))) == 1


def test_snapshots_of_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    store = filled(tmp_path, 1)
    store.check_settings(["epochs=10", "seed=0"])

    store.check_settings(["epochs=10", "seed=0"])
    with pytest.raises(ConfigError, match="epochs=10; epochs=20"):
        store.check_settings(["epochs=20", "seed=0"])
    store.check_settings(["epochs=10", "seed=0"])
    store.close()


def test_settings_may_change_before_there_is_a_snapshot(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, 3, lambda *_, **__: None)
    store.check_settings(["epochs=10"])

    store.check_settings(["epochs=20"])

    store.save_snapshot(PLAN, state_at(1))
    with pytest.raises(ConfigError, match="epochs=10; epochs=20"):
        store.check_settings(["epochs=10"])
    store.close()
