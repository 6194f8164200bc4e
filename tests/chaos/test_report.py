"""The reliability report says what the recorded tries say, and which commits they were made on."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import commits, report, results
from tests.chaos.own.dying_server import POINTS

Tried = Callable[..., None]
LANE = {"transport": "lane", "codec": "none", "power": False}


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tried:
    """Records a result, in a folder where there is none yet."""
    monkeypatch.setattr(results, "FILE", tmp_path / "results.jsonl")
    monkeypatch.setattr(report, "PLANTED", tmp_path / "mutants.json")
    monkeypatch.setattr(report, "PAGE", tmp_path / "page")
    return results.write_down


def kill(servers: int) -> dict[str, Any]:
    return {"servers": list(range(servers)), "workers": []}


def a_round(kind: str, seed: int, retain: int | None = None, **more: Any) -> dict[str, Any]:
    """Two slices with 10 pushes each, of which one lacks 4 examples in `lost` of them and has 4 too many in `twice`."""
    lost, twice = more.pop("lost", 0), more.pop("twice", 0)
    even = {"pushes": 10, "missing": 0.0, "surplus": 0.0}
    other = even | {"missing": 4.0 * lost, "surplus": 4.0 * twice}
    facts = {"kills": [kill(1)], "variant": LANE, "points": [], "dropped": 0, "good": not lost + twice}
    return {"kind": kind, "seed": seed, "retain": retain, "balances": [even, other]} | facts | more


def rows(text: str) -> list[list[str]]:
    """The cells of a section's tables."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]


def test_rounds_are_summed_by_kind_and_retention(tried: Tried) -> None:
    tried("round", a_round("asp", 1))
    tried("round", a_round("asp", 2, kills=[kill(2), kill(0)]))
    tried("round", a_round("bsp", 3, 0, lost=2, twice=1))

    said = report.kills()

    assert rows(said)[2:5] == [
        ["asp", "as set by default", "2", "3", "40", "0", "0", "0"],
        ["bsp", "0 bytes", "1", "1", "20", "2", "1", "1"],
        ["all", "", "3", "4", "60", "2", "1", "1"],
    ]
    assert rows(said)[-2:] == [["asp", "1, 2"], ["bsp", "3"]]
    assert "Seeds of the rounds that were not good: bsp 3." in said


def test_a_part_of_a_lost_push_counts_as_a_push(tried: Tried) -> None:
    slices = [{"pushes": 10, "missing": 1.0, "surplus": 0.0}]

    assert report.figures([a_round("asp", 1, balances=slices)])[3:5] == [1, 0]


def test_deaths_at_a_point_are_counted_by_form_and_transport(tried: Tried) -> None:
    first, last = POINTS[0], POINTS[-1]
    tried("round", a_round("asp", 1, points=[first, first, last]))
    tried("round", a_round("svm", 2, points=[first], variant=LANE | {"transport": "grpc"}))
    tried("round", a_round("asp", 3, points=[last], variant=LANE | {"codec": "fp16"}))

    head, _, *counts = rows(report.points())

    assert head[1:] == ["coded, lane", "dense, lane", "sparse, grpc"]
    assert counts[0] == [first, "0", "2", "1"]
    assert counts[-1] == [last, "1", "1", "0"]


def test_a_power_loss_is_counted_for_each_server_that_it_hit(tried: Tried) -> None:
    tried("round", a_round("asp", 1, kills=[kill(2), kill(1)], dropped=5, variant=LANE | {"power": True}))
    tried("round", a_round("asp", 2))

    said = report.power()

    assert "In 1 of the rounds" in said
    assert "3 times" in said
    assert "5 files" in said


def test_schedules_are_summed_over_all_tries(tried: Tried) -> None:
    tried("schedules", {"seed": 5, "done": {"asp": 7, "lock-step": 3}, "failures": []})
    tried("schedules", {"seed": 9, "done": {"asp": 1000}, "failures": ["seed 12, asp, restart: stalled"]})

    said = report.virtual()

    assert rows(said)[2:] == [["asp", "1,007", "1"], ["lock-step", "3", "0"], ["all", "1,010", "1"]]
    assert "First seeds: 5, 9." in said


def test_the_final_slices_of_the_newest_runs_in_lock_step_are_told(tried: Tried) -> None:
    old = {"undisturbed": ["9 aaa", "9 bbb"]}
    new = {"undisturbed": ["12 0123456789abcdef", "12 1123456789abcdef"], "stopped": ["12 2", "12 3"]}
    tried("bits", {"form": "dense", "slices": old, "good": True, "why": ""})
    tried("bits", {"form": "dense", "slices": new, "good": False, "why": ""})

    said = report.bits()

    assert "Dense, 12 rounds. Not good: other bits." in said
    assert rows(said)[2:] == [["undisturbed", "`0123456789ab`", "`1123456789ab`"], ["stopped", "`2`", "`3`"]]


def test_a_long_run_is_told_with_what_its_processes_held(tried: Tried) -> None:
    tried("soak", a_round("ssp", 4, seconds=120.0))
    tried("held", {"kind": "ssp", "seed": 4, "server memory": {"first": 2**20, "last": 2**21}})
    tried("held", {"kind": "ssp", "seed": 5, "server memory": {"first": 0, "last": 0}})

    said = report.soaks()

    assert "`ssp`, seed 4: 2 minutes, 1 faults, 20 answered pushes, 0 lost, 0 counted twice." in said
    assert rows(said)[2:] == [["server memory", "1.0 MiB", "2.0 MiB"]]


def test_planted_defects_are_listed_with_what_became_of_them(tried: Tried) -> None:
    tries = [{"name": "no dedupe", "survived": []}, {"name": "no fence", "survived": [1]}]
    report.PLANTED.write_text(json.dumps(tries))

    results = {row[0]: row[-1] for row in rows(report.planted())[2:]}

    assert results == {"no dedupe": "caught", "no fence": "survives"}


def test_a_section_without_a_new_try_stays_as_it_is(tried: Tried) -> None:
    tried("round", a_round("asp", 1))
    tried("schedules", {"seed": 5, "done": {"asp": 7}, "failures": []})
    report.write()
    before = report.PAGE.read_text()
    results.FILE.unlink()
    tried("schedules", {"seed": 6, "done": {"asp": 8}, "failures": []})

    report.write()

    assert report.PAGE.read_text() == before.replace("First seeds: 5", "First seeds: 6").replace("| 7 |", "| 8 |")
    assert "## Kills" in before


# commits
def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def test_a_tree_that_was_tried_before_it_landed_is_found_again_by_its_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text("one\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    first = commits.tried_on(tmp_path)
    file.write_text("two\n")
    changed = commits.tried_on(tmp_path)
    git(tmp_path, "checkout", "-qb", "side")
    git(tmp_path, "commit", "-qam", "second")
    rebased = commits.tried_on(tmp_path)
    git(tmp_path, "checkout", "-q", "main")
    other.write_text("three\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "third")
    assert "now" not in commits.named([first, rebased], tmp_path)

    git(tmp_path, "cherry-pick", "side")

    now = f"(now `{commits.tried_on(tmp_path)['commit']}`)"
    said = commits.named([first, first, changed, rebased, {"commit": "0123abcd"}], tmp_path)
    assert changed["commit"] == first["commit"] + "-dirty"
    assert said == f"`{first['commit']}`, `{changed['commit']}` {now}, `{rebased['commit']}` {now}, `0123abcd`"


def test_outside_of_a_clone_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))

    assert commits.tried_on(tmp_path)["commit"] == "unknown"
