"""Finished runs side by side: how they are grouped, what the tables say, and which files are written."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.core.chief.scoring import Score
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.folder.series import find_series
from paceline_studies.comparison.compare import compare_runs, compared
from paceline_studies.comparison.comparison import Comparison
from paceline_studies.comparison.finished import Finished
from paceline_studies.comparison.pictures import by_epoch, by_time
from paceline_studies.comparison.sides import Side
from paceline_studies.comparison.tables import tables
from tests.support.finished_run import finished_run
from tests.support.pages import FROM_ELSEWHERE

BSP, ASP = {"policy": {"name": "bsp"}}, {"policy": {"name": "asp"}}


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def two_series(runs: Path, gain: float = 0.05) -> None:
    """bsp-1 to bsp-3 and asp-1 to asp-3, which are better by this and a little noise."""
    for number in (1, 2, 3):
        finished_run(runs, f"bsp-{number}", 0.8 + 0.01 * number, seed=number, **BSP)
        finished_run(runs, f"asp-{number}", 0.8 + gain + 0.011 * number, seconds=5.0, seed=number, **ASP)


def of(runs: Path, *names: str) -> Comparison:
    return compared([folder for name in names for folder in find_series(name, runs)], None)


def test_a_worker_waited_as_long_as_all_its_processes_together(runs: Path) -> None:
    folder = finished_run(runs, "a", seconds=10.0)
    lines = [json.loads(folder.metrics.read_text()) for _ in range(2)]
    for incarnation, (line, wait) in enumerate(zip(lines, (3.0, 2.0), strict=True), 1):
        figures = {"wait_seconds": wait}
        line["workers"] = [{"worker": "worker-0", "clock": 1, "incarnation": incarnation, "figures": figures}]
    folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))

    assert Finished(folder, "a").waited == 0.5


def test_runs_that_differ_in_their_seed_alone_are_one_training(runs: Path) -> None:
    two_series(runs)
    found = of(runs, "bsp", "asp")

    assert [(side.name, side.seeds) for side in found.sides] == [("bsp", [1, 2, 3]), ("asp", [1, 2, 3])]
    assert found.settings == {"policy.name": ["bsp", "asp"]}
    assert found.conclusion == "By validation accuracy, asp is best, and that is more than noise."


def test_another_version_of_a_users_file_is_another_training(runs: Path) -> None:
    for number, text in enumerate(("one", "two")):
        folder = finished_run(runs, f"mine-{number}")
        folder.kept_task("mine.py").parent.mkdir()
        folder.kept_task("mine.py").write_text(text)

    assert list(of(runs, "mine-0", "mine-1").settings) == ["content of mine.py"]


def test_what_lies_within_the_noise_is_called_that_and_the_quickest_is_named(runs: Path) -> None:
    two_series(runs, gain=-0.003)
    found = of(runs, "bsp", "asp")

    assert found.conclusion == (
        "By validation accuracy, bsp is best; within the noise of it: asp. Of these asp takes the least time (5.0 s)."
    )


def test_two_that_are_level_are_both_best(runs: Path) -> None:
    two_series(runs, gain=-0.002)

    assert of(runs, "bsp", "asp").conclusion == (
        "By validation accuracy, bsp and asp are best. Of these asp takes the least time (5.0 s)."
    )


def test_runs_of_the_same_settings_are_not_compared_but_their_noise_is_told(runs: Path) -> None:
    for number in (1, 2):
        finished_run(runs, f"bsp-{number}", 0.8 + 0.01 * number, seed=number, **BSP)
    found = of(runs, "bsp")

    assert found.conclusion == "All 2 runs have the same settings but the seed: what lies between them is noise."
    assert [table.title for table in tables(found)] == ["What each gave"]


def test_one_run_each_can_not_be_told(runs: Path) -> None:
    finished_run(runs, "first", 0.9, **BSP)
    finished_run(runs, "second", 0.8, **ASP)
    found = of(runs, "first", "second")

    assert (
        "the runs can't tell whether that is more than noise, compared with second: it takes 3 seeds"
        in found.conclusion
    )
    *_, last = tables(found)
    assert list(last.heads) == ["", "of", "so it is", "difference"]
    assert ["second", "validation accuracy", "cannot tell: one seed", "-0.1000"] in last.rows


def test_the_tables_have_mean_spread_and_paired_differences(runs: Path) -> None:
    two_series(runs)
    settings, figures, differences = tables(of(runs, "bsp", "asp"))

    assert settings.rows == [["policy.name", "bsp", "asp"]]
    heads = ["", "validation accuracy", "test accuracy", "time (s)", "examples/s", "staleness", "waiting"]
    assert figures.heads == heads
    assert figures.rows[0] == ["bsp", "0.820±0.010", "0.820±0.010", "10.00±0.00", "200", "1.5", "25 %"]
    assert differences.rows[0] == ["asp", "validation accuracy", "better", "+0.0520", "+0.0495 to +0.0545"]
    assert differences.rows[2][:3] == ["asp", "time (s)", "better"]


def test_the_command_writes_numbers_curves_and_a_page_that_needs_nothing_else(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    two_series(runs)

    assert compare_runs(["bsp", "asp"], None, None, False) == 0
    assert compare_runs(["bsp", "asp"], None, None, False) == 0, "it replaces its own files"

    folder = Path("compare/bsp-asp")
    assert capsys.readouterr().out.endswith(f"{folder}: compare.html, by-epoch.png, by-time.png, compare.json\n")
    for name in ("by-epoch.png", "by-time.png"):
        assert (folder / name).read_bytes().startswith(b"\x89PNG")
    page = (folder / "compare.html").read_text()
    assert "asp is best, and that is more than noise" in page
    assert page.count("<svg") == 2
    assert not FROM_ELSEWHERE.search(page)


def test_programs_get_one_object(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_series(runs)
    finished_run(runs, "dssp", 0.7, policy={"name": "dssp"}, seed=1)

    compare_runs(["bsp", "asp", "dssp"], None, Path("all"), True)
    found: dict[str, Any] = json.loads(capsys.readouterr().out)

    assert found["by"] == "validation_accuracy"
    first, asp, dssp = found["sides"]
    assert first["figures"]["seconds"]["difference"] is None
    assert asp["figures"]["seconds"]["difference"] == {
        "mean": -5,
        "low": -5,
        "high": -5,
        "seeds": 3,
        "verdict": "better",
    }
    assert dssp["figures"]["test_accuracy"]["difference"]["low"] is None
    assert dssp["runs"] == [{"run": "dssp", "folder": "runs/dssp", "seed": 1}]
    assert json.loads(Path("all/compare.json").read_text())["sides"] == found["sides"]


class Ended(Finished):
    """A run of which the scores are known."""

    def __init__(self, *scores: tuple[int, float]) -> None:
        super().__init__(RunFolder(Path("one")), "one")
        self.__dict__["scores"] = [
            Score(epoch, float(number), [], {"test_loss": value}) for number, (epoch, value) in enumerate(scores)
        ]

    @property
    def history(self) -> list[Score]:
        found: list[Score] = self.__dict__["scores"]
        return found


def test_of_an_epoch_that_a_run_has_trained_twice_the_newest_score_counts() -> None:
    run = Ended((0, 4.0), (1, 3.0), (2, 9.0), (3, 90.0), (2, 2.0), (3, 1.0))
    comparison: Any = SimpleNamespace(sides=[Side("a", [run])], split="test", measure=SimpleNamespace(name="loss"))

    (curve,) = by_epoch(comparison)
    assert (curve.at.tolist(), curve.mean.tolist()) == ([0, 1, 2, 3], [4, 3, 2, 1])
    (curve,) = by_time(comparison)
    assert (curve.at[-1], curve.mean[-1]) == (5, 1)
