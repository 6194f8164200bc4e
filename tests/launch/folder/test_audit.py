"""`paceline audit`: anything damaged, or that does not fit, is found, said and an exit code; nothing is changed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from paceline.cli.__main__ import app
from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.state import SliceState
from paceline.launch.folder.audit import RunAudit, audit_run, audit_server
from paceline.launch.folder.run_folder import RunFolder, open_run
from paceline.server.json_files import Owner
from paceline.server.state_folder import StateFolder

SHAPES = (("first.weight", (20,)), ("last.weight", (20,)))


def keep(
    folder: RunFolder,
    server: int,
    *clocks: Mapping[str, int],
    lost: int = 0,
    plan: SlicePlan | None = None,
    run: str = "one",
) -> None:
    """A start of the server in which it takes these snapshots; `lost`: pushes that the clocks name and it has not counted."""
    plan = plan or make_plan(SHAPES, 2, Config().plan)
    store = StateFolder(folder.server(server), 3, lambda *_, **__: None, Owner(run, server, 2))
    if server == 0:
        store.save_run({"membership": {"incarnations": {"worker-0": 1, "worker-1": 1}}})
    for each in clocks:
        entries = {worker: {"clock": clock, "incarnation": 1} for worker, clock in each.items()}
        pushes = sum(each.values()) - lost
        table = {"version": pushes, "pushes": pushes, "clocks": entries}
        store.save_snapshot(plan, SliceState(np.full(20, pushes, np.float32), [], table))
    store.close()


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return open_run(Config(run="one", workers=2, servers=2), runs=tmp_path)[0]


@pytest.fixture
def kept(folder: RunFolder) -> RunFolder:
    """Two snapshots of each server, all of them whole."""
    for server in (0, 1):
        keep(folder, server, {"worker-0": 4, "worker-1": 5}, {"worker-0": 10, "worker-1": 11})
    return folder


def data_of(folder: RunFolder, server: int, number: int, kind: str = "safetensors") -> Path:
    return folder.server(server) / f"snapshot-{number:012d}.{kind}"


def flip(file: Path) -> None:
    """Another bit in the middle."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def text(audit: RunAudit) -> str:
    return "\n".join(audit.lines())


def test_a_run_whose_snapshots_are_whole_is_sound(kept: RunFolder) -> None:
    kept.write_facts(exit_code=137)

    audit = audit_run(kept)

    assert (audit.exit_code, audit.all_wrong) == (0, [])
    assert "run one ended with exit code 137" in text(audit)
    assert "server-1: version 21 with 21 pushes" in text(audit)
    assert "2 snapshots, all intact; the next term is 2" in text(audit)
    assert "worker-0: clock 10\nworker-1: clock 11" in text(audit)
    assert f"A resume computes nothing again: paceline run {kept.config}" in text(audit)


def test_what_workers_had_done_beyond_the_slice_that_is_furthest_back_is_computed_again(folder: RunFolder) -> None:
    keep(folder, 0, {"worker-0": 10, "worker-1": 11})
    keep(folder, 1, {"worker-0": 8, "worker-1": 11})
    workers = [{"worker": "worker-0", "clock": 9}, {"worker": "worker-1", "clock": 14}]
    folder.metrics.write_text(json.dumps({"workers": workers}) + "\n")

    audit = audit_run(folder)

    assert [(each.worker, each.resumes_at, each.again) for each in audit.workers] == [
        ("worker-0", 8, 2),
        ("worker-1", 11, 3),
    ]
    assert "worker-0: clock 10 in server-0, clock 8 in server-1; 2 mini-batches up to 10 again" in text(audit)
    assert "A resume computes 5 mini-batches again" in text(audit)
    assert audit.exit_code == 0


def test_a_flipped_bit_is_found_and_the_snapshot_before_is_what_a_resume_finds(kept: RunFolder) -> None:
    flip(data_of(kept, 1, 2))

    audit = audit_run(kept)

    assert audit.exit_code == 1
    assert list(audit.servers["server-1"].damaged) == [2]
    assert "wrong: server-1: snapshot 2 is damaged: snapshot-000000000002.safetensors does not have" in text(audit)
    assert "2 snapshots, 1 damaged" in text(audit)
    assert [(each.resumes_at, each.again) for each in audit.workers] == [(4, 6), (5, 6)]


@pytest.mark.parametrize("harm", [flip, Path.unlink, lambda file: file.write_bytes(file.read_bytes()[:-9])])
@pytest.mark.parametrize("kind", ["safetensors", "json"])
def test_whatever_happens_to_a_file_of_the_newest_snapshot_is_found(kept: RunFolder, kind: str, harm: Any) -> None:
    harm(data_of(kept, 0, 2, kind))

    audit = audit_run(kept)

    assert audit.exit_code == 1
    newest = audit.servers["server-0"].newest
    assert newest.number == 1


def test_a_server_without_an_intact_snapshot_is_said(kept: RunFolder) -> None:
    for number in (1, 2):
        flip(data_of(kept, 1, number))

    audit = audit_run(kept)

    assert "server-1: 2 snapshots, none intact; term 1" in text(audit)
    assert any("None of its snapshots is intact" in each for each in audit.all_wrong)
    assert any("server-1 has no intact snapshot, while others have" in each for each in audit.all_wrong)


@pytest.mark.parametrize("name", ["term.json", "run.json"])
def test_a_damaged_table_is_found(kept: RunFolder, name: str) -> None:
    flip(kept.server(0) / name)

    assert any(f"{name} is damaged" in each for each in audit_run(kept).all_wrong)


def test_a_lost_term_is_known_from_the_other_files(kept: RunFolder) -> None:
    for _ in range(4):
        keep(kept, 1, {"worker-0": 12, "worker-1": 12})
    (kept.server(1) / "term.json").unlink()

    assert audit_run(kept).servers["server-1"].term == 5


def test_the_run_state_of_the_chief_must_not_be_older_than_its_snapshots(kept: RunFolder) -> None:
    store = StateFolder(kept.server(0), 3, lambda *_, **__: None)
    store.save_run({"membership": {"incarnations": {"worker-0": 1}}})
    store.close()

    assert any("run.json is older than the snapshots" in each for each in audit_run(kept).all_wrong)


def test_a_folder_of_another_server_is_found(kept: RunFolder) -> None:
    kept.server(1).rename(kept.path / "away")
    kept.server(0).rename(kept.server(1))
    (kept.path / "away").rename(kept.server(0))

    found = audit_run(kept).all_wrong

    assert any("is of server 1, this is server 0" in each for each in found)
    assert any("is of server 0, this is server 1" in each for each in found)


def test_slices_of_different_models_are_found(folder: RunFolder) -> None:
    keep(folder, 0, {"worker-0": 1})
    keep(folder, 1, {"worker-0": 1}, plan=make_plan((("other", (40,)),), 2, Config().plan))

    assert any("cut by 2 different plans" in each for each in audit_run(folder).all_wrong)


@pytest.mark.parametrize(("lost", "said"), [(3, "3 pushes are lost"), (-2, "2 pushes were counted twice")])
def test_pushes_that_the_clocks_name_and_the_slice_has_not_are_lost(folder: RunFolder, lost: int, said: str) -> None:
    keep(folder, 0, {"worker-0": 10})
    keep(folder, 1, {"worker-0": 10}, lost=lost)

    assert [said in each for each in audit_run(folder).all_wrong] == [True]


def test_a_run_without_snapshots_starts_from_the_beginning(folder: RunFolder) -> None:
    audit = audit_run(folder)

    assert audit.exit_code == 0
    assert "it starts from the beginning" in text(audit)


def test_a_run_without_servers_keeps_nothing(tmp_path: Path) -> None:
    folder, _ = open_run(Config(run="alone", servers=0, policy={"name": "dpsgd"}), runs=tmp_path)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="has no servers"):
        audit_run(folder)


def test_nothing_is_changed(kept: RunFolder) -> None:
    flip(data_of(kept, 0, 2))
    (kept.server(0) / "snapshot-000000000003.json.tmp").write_text("half")
    before = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in kept.path.rglob("*") if file.is_file()}

    audit_run(kept)

    after = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in kept.path.rglob("*") if file.is_file()}
    before.pop(kept.path / ".lock", None), after.pop(kept.path / ".lock", None)
    assert before == after


def test_the_folder_of_one_server_can_be_audited_alone(kept: RunFolder, tmp_path: Path) -> None:
    audit = audit_server(kept.server(1))

    assert (audit.exit_code, list(audit.servers)) == (0, ["server-1"])
    with pytest.raises(UsageError, match="neither the folder of a run nor that of a server"):
        audit_server(tmp_path)


def test_programs_get_json_and_the_exit_code(kept: RunFolder) -> None:
    flip(data_of(kept, 1, 2))

    for place, code in ((kept.path, 1), (kept.server(0), 0)):
        ended = CliRunner().invoke(app, ["audit", str(place), "--json"])
        found = json.loads(ended.stdout)
        assert (ended.exit_code, found["sound"]) == (code, not code)
        assert found["workers"]["worker-0"]["clocks"]["server-0"] == 10
