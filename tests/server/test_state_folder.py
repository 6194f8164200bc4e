"""The server's folder: no matter what happens to it, nothing damaged or half-written is taken for whole."""

import dataclasses
import errno
import fcntl
import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.settings.config import Config, Options, PlanConfig
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.state import SliceState
from paceline.core.values import Sparse
from paceline.server import state_folder
from paceline.server.json_files import Owner
from paceline.server.state_folder import StateFolder
from tests.support.disks import CALLS, FailingDisk
from tests.support.own_time import own_time

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
    assert found(tmp_path, Said()) is None, "an empty folder has none"
    filled(tmp_path, 2).close()
    plan, state = found(tmp_path, Said())
    assert plan == PLAN
    assert (state.weights.tolist(), state.slots[0].tolist()) == ([2.0] * 9, [-2.0] * 9)
    assert state.table == state_at(2).table


def test_the_shares_of_an_open_sum_come_back_as_they_were(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, keep=3, say=Said())
    some = {"worker-0": ([1, 8], [0.5, -2.0]), "worker-1": ([], []), "worker-2": ([0], [3.0])}
    shares = {
        name: Sparse(np.array(places, np.int64), np.array(values, np.float32), 9)
        for name, (places, values) in some.items()
    }
    store.save_snapshot(PLAN, dataclasses.replace(state_at(1), shares=shares))
    store.close()

    _, state = found(tmp_path, Said())

    assert {name: (one.places.tolist(), one.values.tolist()) for name, one in state.shares.items()} == some
    assert [len(one) for one in state.shares.values()] == [9, 9, 9]


@pytest.mark.parametrize("places", [[3, 3], [4, 1], [-1, 2], [2, 9]], ids=["twice", "falling", "negative", "beyond"])
def test_shares_of_other_places_than_the_slice_has_are_damaged(places: list[int], tmp_path: Path) -> None:
    store, said = StateFolder(tmp_path, keep=3, say=Said()), Said()
    store.save_snapshot(PLAN, state_at(1))
    shares = {"worker-0": Sparse(np.array(places), np.ones(2, np.float32), 9)}
    store.save_snapshot(PLAN, dataclasses.replace(state_at(2), shares=shares))
    store.close()

    _, state = found(tmp_path, said)

    assert state.table["version"] == 1
    assert [event for event, _ in said] == ["snapshot is damaged, trying the one before"]


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    filled(tmp_path, 5).close()
    names = sorted(path.name for path in tmp_path.glob("snapshot-*"))
    assert names == [f"snapshot-{n:012d}.{kind}" for n in (3, 4, 5) for kind in ("json", "safetensors")]


def test_the_common_snapshot_of_rounds_is_kept_however_old_it_is(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, keep=2, say=Said())
    for version in range(1, 7):
        state = state_at(version)
        store.save_snapshot(PLAN, dataclasses.replace(state, table=state.table | {"rounds": True}))
        store.spare(2)

    assert store.round_versions() == {2, 5, 6}
    store.close()


def test_who_reads_the_versions_is_not_disturbed_by_a_snapshot_that_another_thread_writes(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, keep=1, say=Said())
    in_rounds = [dataclasses.replace(state, table=state.table | {"rounds": True}) for state in map(state_at, (4, 5))]
    store.save_snapshot(PLAN, in_rounds[0])
    begun = [iter(table) for table in (store._snapshots.versions, store._snapshots._in_rounds)]

    store.save_snapshot(PLAN, in_rounds[1])

    assert [list(table) for table in begun] == [[1], [1]]
    assert store.round_versions() == {5}
    store.close()


def test_snapshots_that_a_diverged_run_may_go_back_to_are_kept_however_old_they_are(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, keep=2, say=Said())
    for version in range(6):
        store.save_snapshot(PLAN, state_at(version))
        store.spare_good([0, 2])
    store.close()

    again = StateFolder(tmp_path, keep=2, say=Said())
    assert again.versions == store.versions == [0, 2, 4, 5]

    again.save_snapshot(PLAN, state_at(6))
    assert again.versions == [0, 2, 4, 5, 6], "nobody has said yet which ones are good"
    again.spare_good([2])
    again.save_snapshot(PLAN, state_at(7))
    assert again.versions == [2, 6, 7]
    again.close()


def test_a_diverged_run_goes_back_to_an_intact_snapshot_with_finite_weights(tmp_path: Path) -> None:
    said = Said()
    store = filled(tmp_path, 1, said)
    endless = np.full(9, np.inf, np.float32)
    store.save_snapshot(PLAN, dataclasses.replace(state_at(2), weights=endless))
    store.save_snapshot(PLAN, state_at(3))
    (tmp_path / "snapshot-000000000003.safetensors").write_bytes(b"torn")

    state = store.good_weights(3)

    assert state.weights.tolist() == [1.0] * 9
    assert [(event, facts["snapshot"]) for event, facts in said] == [
        ("snapshot is damaged, trying the one before", 3),
        ("snapshot has weights that are not finite, trying the one before", 2),
    ]
    assert store.good_weights(0) is None
    store.close()


def test_terms_grow_with_every_start(tmp_path: Path) -> None:
    terms = []
    for _ in range(3):
        store = StateFolder(tmp_path, 3, Said())
        terms.append(store.term)
        store.close()
    assert terms == [1, 2, 3]


def test_two_servers_cannot_use_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_folder, "_HANDOVER", 0.0)
    store = StateFolder(tmp_path, 3, Said())
    with pytest.raises(ConfigError, match="Another server"):
        StateFolder(tmp_path, 3, Said())
    store.close()


def test_a_server_waits_for_the_lock_of_one_that_just_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = StateFolder(tmp_path, 3, Said())
    own_time(monkeypatch, state_folder, sleep=lambda seconds: store.close())

    again = StateFolder(tmp_path, 3, Said())

    assert again.term == 2
    again.close()


def test_a_file_system_without_locks_is_no_other_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", no_locks)

    with pytest.raises(DiskError, match=r"can't be locked: No locks available\. Give --folder a place"):
        StateFolder(tmp_path, 3, Said())


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
        assert loaded[1].weights.tolist() == [2.0] * 9, (trial, victim.name)
        assert any("damaged" in event for event, _ in said)
        shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("ending", "spoil", "told"),
    [
        ("safetensors", lambda path: path.write_bytes(path.read_bytes()[:-1]), "None of the 2 snapshots"),
        ("json", Path.unlink, r"data of 2 snapshots, but not .*: snapshot-0+1.json, .* Restore"),
    ],
    ids=["every snapshot is damaged", "all manifests are gone"],
)
def test_a_run_whose_snapshots_are_all_spoilt_does_not_start_from_nothing(
    tmp_path: Path, ending: str, spoil: Any, told: str
) -> None:
    filled(tmp_path, 2).close()
    for path in tmp_path.glob(f"snapshot-*.{ending}"):
        spoil(path)
    with pytest.raises(DataError, match=told):
        found(tmp_path, Said())
    assert len(list(tmp_path.glob("snapshot-*.safetensors"))) == 2


def test_what_an_interrupted_write_left_is_removed_and_said(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    begun = [f"snapshot-000000000002.{kind}" for kind in ("tmp", "json.tmp", "safetensors")]
    leftovers = [*begun, "run.json.tmp"]
    for name in leftovers:
        (tmp_path / name).write_bytes(b"half")
    said = Said()
    loaded = found(tmp_path, said)
    assert loaded[1].weights.tolist() == [1.0] * 9
    assert sorted(facts["file"] for _, facts in said) == sorted(leftovers)
    assert not [name for name in leftovers if (tmp_path / name).exists()]


def test_a_removal_that_was_interrupted_is_ended(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / f"snapshot-{1:012d}.json").unlink()
    said = Said()
    assert found(tmp_path, said) is not None
    assert said == [("removed what an interrupted write left", {"file": f"snapshot-{1:012d}.safetensors"})]


def test_data_whose_manifest_somebody_has_taken_away_is_told_and_left_alone(tmp_path: Path) -> None:
    filled(tmp_path, 3).close()
    (tmp_path / f"snapshot-{3:012d}.json").rename(tmp_path / "away")
    said = Said()
    loaded = found(tmp_path, said)
    assert loaded[1].weights.tolist() == [2.0] * 9
    data, manifest = (f"snapshot-{3:012d}.{kind}" for kind in ("safetensors", "json"))
    assert said == [("a snapshot without its manifest is not used, and left alone", {"file": data, "lacks": manifest})]

    filled(tmp_path, 1).close()

    (tmp_path / "away").rename(tmp_path / manifest)
    (tmp_path / f"snapshot-{4:012d}.json").unlink()  # what was written since took another number
    loaded = found(tmp_path, Said())
    assert loaded[1].weights.tolist() == [3.0] * 9


# whose a folder is
def owned(folder: Path, owner: Owner, said: Said | None = None) -> StateFolder:
    return StateFolder(folder, 3, said if said is not None else Said(), owner)


@pytest.mark.parametrize("left", ["*", "snapshot-*"])
@pytest.mark.parametrize(
    ("owner", "why"),
    [
        (Owner("a", 1, 2), r"is of server 0, this is server 1\. Give each server the folder that it had\."),
        (Owner("b", 0, 2), r"is of run a, this is run b\. Start run a again, or give this one empty folders\."),
    ],
)
def test_the_folder_of_another_server_or_run_is_refused(tmp_path: Path, owner: Owner, why: str, left: str) -> None:
    store = owned(tmp_path, Owner("a", 0, 2))
    store.save_snapshot(PLAN, state_at(1))
    store.close()
    for path in {*tmp_path.iterdir()} - {*tmp_path.glob(left)}:
        path.unlink()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(ConfigError, match=why):
        owned(tmp_path, owner)

    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before | {"lock": b""}
    owned(tmp_path, Owner("a", 0, 2)).close()


def test_a_run_without_a_name_goes_on_with_any_and_any_with_it(tmp_path: Path) -> None:
    for run in ("", "a", ""):
        owned(tmp_path, Owner(run, 0, 1)).close()


def test_a_snapshot_of_another_length_than_the_servers_slice_is_refused(tmp_path: Path) -> None:
    """An older release's does not say whose it is."""
    plan = make_plan((*SHAPES, ("b.weight", (4,))), 2, PlanConfig(slices="layerwise"))
    assert plan.lengths == (9, 4)
    store = StateFolder(tmp_path, 3, Said())
    store.save_snapshot(plan, state_at(1))
    store.close()
    store = owned(tmp_path, Owner("a", 1, 2))
    with pytest.raises(ConfigError, match=r"holds 9 values, but the slice of server 1 has 4\. Give each"):
        store.newest_snapshot()
    store.close()


def test_a_deleted_term_does_not_make_the_term_fall(tmp_path: Path) -> None:
    for version in range(1, 4):
        store = StateFolder(tmp_path, 3, Said())
        store.save_snapshot(PLAN, state_at(version))
        store.close()
    (tmp_path / "term.json").unlink()
    said = Said()
    store = StateFolder(tmp_path, 3, said)
    assert store.term == 4
    assert said == [("term.json is missing; the other files say the last term", {"term": 3})]
    store.close()


def test_a_deleted_term_beside_snapshots_that_say_none_is_refused(tmp_path: Path) -> None:
    filled(tmp_path, 1).close()
    manifest = tmp_path / f"snapshot-{1:012d}.json"
    value = json.loads(manifest.read_text().splitlines()[0])
    del value["of"]  # as an older release writes it
    text = json.dumps(value)
    manifest.write_text(f"{text}\n{hashlib.sha256(text.encode()).hexdigest()}\n")
    (tmp_path / "term.json").unlink()
    with pytest.raises(DataError, match=r"term.json is missing, though there are snapshots. Bring it back"):
        StateFolder(tmp_path, 3, Said())


def test_a_manifest_says_whose_it_is_and_how_far_the_run_was(tmp_path: Path) -> None:
    store = owned(tmp_path, Owner("a", 0, 1))
    entries = {f"worker-{number}": {"incarnation": 3 - number, "clock": 1} for number in range(2)}
    state = state_at(1)
    store.save_snapshot(PLAN, dataclasses.replace(state, table=state.table | {"clocks": entries}))
    store.close()
    manifest = json.loads((tmp_path / f"snapshot-{1:012d}.json").read_text().splitlines()[0])
    assert manifest["of"] == {"term": 1, "run": "a", "server": 0, "servers": 1}
    assert (manifest["length"], manifest["incarnation"], manifest["plan"]["hash"]) == (9, 3, PLAN.hash)


def test_a_chief_does_not_go_on_from_an_older_run_state_than_its_snapshot(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, 3, Said())
    clocks = {"worker-0": {"incarnation": 2, "clock": 5}}
    with pytest.raises(DataError, match=r"run.json is missing, though there are snapshots. Bring it back"):
        store.check_run(clocks)
    store.save_run({"membership": {"incarnations": {"worker-0": 1}}})
    with pytest.raises(DataError, match=r"older than the snapshots: worker-0 has incarnation 1 in it, 2 there. Bring"):
        store.check_run(clocks)
    store.save_run({"membership": {"incarnations": {"worker-0": 2}}})
    store.check_run(clocks)
    store.close()


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


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("fails", CALLS)
def test_a_failing_disk_leaves_the_older_snapshots_intact(tmp_path: Path, fails: str, error: int) -> None:
    disk, said = FailingDisk(error, ()), Said()
    store = StateFolder(tmp_path, 1, said, disk=disk)
    store.save_snapshot(PLAN, state_at(1))
    disk.fails = [fails]
    if fails == "unlink":  # the snapshot is whole; what it replaces stays for now
        store.save_snapshot(PLAN, state_at(2))
        assert [event for event, _ in said] == ["can't remove a file"] * 2
    else:
        with pytest.raises(DiskError, match="write"):
            store.save_snapshot(PLAN, state_at(2))
    store.close()
    loaded = found(tmp_path, Said())
    version = 2 if fails == "unlink" else 1
    assert loaded[1].weights.tolist() == [version] * 9
    assert not list(tmp_path.glob("*.tmp"))


def test_after_a_failed_fsync_a_new_file_is_written(tmp_path: Path) -> None:
    disk = FailingDisk(errno.EIO, ())
    store = StateFolder(tmp_path, 3, Said(), disk=disk)
    disk.synced, disk.fails = [], ["sync"]
    with pytest.raises(DiskError):
        store.save_snapshot(PLAN, state_at(1))
    keeper = (tmp_path / "keeper").open("wb")  # takes the number of the file that is gone
    disk.fails = ()
    store.save_snapshot(PLAN, state_at(1))
    keeper.close()
    failed, *later = disk.synced
    assert failed not in later
    store.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_server_comes_back_while_its_disk_takes_nothing(tmp_path: Path, error: int) -> None:
    filled(tmp_path, 2).close()
    terms = []
    for _ in range(2):
        said = Said()
        store = StateFolder(tmp_path, 3, said, disk=FailingDisk(error))
        terms.append(store.term)
        store.check_settings(["epochs=1"])
        loaded = store.newest_snapshot()
        assert loaded[1].weights.tolist() == [2.0] * 9
        told = ["can't keep the term; it is taken from the clock", "can't write a file; the older one stays"]
        assert [event for event, _ in said] == told
        store.close()
    assert terms[0] > 1_700_000_000
    assert found(tmp_path, Said()) is not None


def test_terms_only_rise_while_a_full_disk_takes_none_and_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [2_000_000_000.0]
    monkeypatch.setattr("paceline.server.state_folder.time.time", lambda: clock[0])
    filled(tmp_path, 2).close()
    terms = []
    for disk in (None, *3 * [FailingDisk(errno.ENOSPC, ("create",))], None, None):
        store = StateFolder(tmp_path, 3, Said(), disk=disk)
        terms.append(store.term)
        store.close()
        clock[0] -= 100  # somebody sets it back
    assert terms[0] < 10
    assert terms[1:] == list(range(2_000_000_000 - 100, 2_000_000_000 - 95))


@pytest.mark.parametrize("error", [errno.EROFS, errno.EIO])
def test_a_disk_that_keeps_no_trace_of_a_start_is_told(tmp_path: Path, error: int) -> None:
    filled(tmp_path, 2).close()
    said = Said()
    StateFolder(tmp_path, 3, said, disk=FailingDisk(error)).close()
    assert "the next start may have a lower term" in said[0][1]["why"]


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_new_run_does_not_begin_on_a_disk_that_takes_nothing(tmp_path: Path, error: int) -> None:
    with pytest.raises(DiskError, match=r"term\.json"):
        StateFolder(tmp_path, 3, Said(), disk=FailingDisk(error))


def test_once_there_is_a_snapshot_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    store = StateFolder(tmp_path, 3, Said())
    store.check_settings(["epochs=9", "seed=0"])
    store.check_settings(["epochs=10", "seed=0"])
    store.save_snapshot(PLAN, state_at(1))

    store.check_settings(["epochs=10", "seed=0"])
    with pytest.raises(ConfigError, match="epochs=10; epochs=5"):
        store.check_settings(["epochs=5", "seed=0"])
    with pytest.raises(ConfigError, match="epochs=10; epochs=20; seed=0; seed=1"):
        store.check_settings(["epochs=20", "seed=1"])
    store.check_settings(["epochs=20", "seed=0"])
    with pytest.raises(ConfigError, match="epochs=10; epochs=20"):
        store.check_settings(["epochs=10", "seed=0"])
    store.close()
