"""`paceline search` with real servers and workers: a table, what goes on after an interruption, what fails."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import paceline
from tests.support.private_files import open_to_others

pytest.importorskip("torch")

SEARCH = [
    "search",
    "digits",
    "--grid",
    "task=./broken.py,digits",
    "--grid",
    "optimizer.lr=0.4,0.1",
    "-w",
    "1",
    "-s",
    "1",
]
MORE = ("--epochs", "1", "--set", "batch_size=64", "--cores", "4", "--out", "both")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("place")
    (folder / "broken.py").write_text("def data(path):\n    raise OSError('no disk')\n\n\ndef model():\n    pass\n")
    return folder


@pytest.fixture(scope="module")
def first(place: Path) -> subprocess.CompletedProcess[str]:
    """Two points that fail and two that train."""
    return paceline(*SEARCH, *MORE, cwd=place)


def test_points_that_fail_are_told_and_the_others_go_on(first: subprocess.CompletedProcess[str]) -> None:
    assert first.returncode == 65, first.stdout + first.stderr
    assert "point 1 of 4 (task=./broken.py, optimizer.lr=0.4) failed: " in first.stdout
    assert first.stdout.count("OSError: no disk") == 2
    assert first.stdout.splitlines()[-1].startswith(("best: point 3 (task=digits", "best: point 4 (task=digits"))


def test_the_results_are_there_as_tables_and_as_a_picture(first: subprocess.CompletedProcess[str], place: Path) -> None:
    found = json.loads((place / "both/results.json").read_text())

    assert [point["error"] is None for point in found["points"]] == [False, False, True, True]
    assert found["points"][found["best"] - 1]["best"]
    assert found["points"][2]["epochs_trained"] == pytest.approx(1, abs=0.1)
    assert "| 1 | ./broken.py | 0.4 | failed |" in (place / "both/results.md").read_text()
    with (place / "both/results.csv").open() as table:
        assert [line["point"] for line in csv.DictReader(table)] == ["1", "2", "3", "4"]
    assert (place / "both/results.png").read_bytes().startswith(b"\x89PNG")


def test_nobody_else_can_read_what_a_search_has_made(first: subprocess.CompletedProcess[str], place: Path) -> None:
    assert (place / "both/points/point-2").is_dir()
    assert open_to_others(place / "both") == []


def test_a_point_is_a_run_as_others_are(first: subprocess.CompletedProcess[str], place: Path) -> None:
    from paceline.results.result import Result

    result = Result(place / "both/points/point-3")

    assert result.metrics["test_accuracy"] > 0.5
    assert result.export(place / "model.pt").is_file()


def test_runs_that_differ_in_nothing_that_shards_depend_on_share_them(
    first: subprocess.CompletedProcess[str], place: Path
) -> None:
    folders = {(place / f"both/points/point-{number}/shards").resolve() for number in (3, 4)}

    assert len(folders) == 1
    assert (folders.pop() / "manifest.json").is_file()


@pytest.mark.nightly  # by day test_points_in_process.py goes on
def test_a_killed_search_goes_on_and_finished_points_are_not_run_again(place: Path) -> None:
    words = ["digits", "--grid", "seed=0,1,2", "-w", "1", "-s", "1", "--epochs", "2", "--cores", "2", "--out", "killed"]
    command = [sys.executable, "-m", "paceline.cli", "search", *words]
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, text=True) as killed:
        assert killed.stdout is not None
        next(line for line in killed.stdout if line.startswith("point 2 of 3"))
        killed.kill()
    before = (place / "killed/points/point-1/run.json").read_text()

    again = paceline("search", *words, "--json", cwd=place)

    assert again.returncode == 0, again.stderr
    assert "1 of 3 points are finished already" in again.stderr
    assert [point["error"] for point in json.loads(again.stdout)["points"]] == [None] * 3
    assert (place / "killed/points/point-1/run.json").read_text() == before


def test_a_search_with_other_settings_is_refused(first: subprocess.CompletedProcess[str], place: Path) -> None:
    other = paceline(*SEARCH, "--grid", "seed=0,1", "--epochs", "2", "--out", "both", cwd=place)

    assert other.returncode == 78
    assert "grid.seed: None before, [0, 1] now" in other.stderr
    assert "settings.epochs: 1 before, 2 now" in other.stderr
    assert "--fresh" in other.stderr
