"""`paceline search --engine local`: linear models in the search's own process, and `--by` a metric of one's choice."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from paceline.core.errors import ConfigError, DataError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.settings.read_config import read_config
from paceline.results.result import Result
from paceline.settings.flags import Flags
from paceline.studies.search.grid import read_grid
from paceline.studies.search.search import search
from paceline.studies.search.search_folder import SearchFolder
from paceline_papers.rcv1_like import rcv1_like, write_svmlight


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = rcv1_like(300, 100, features=500)
    assert made.test is not None
    write_svmlight(made.train, tmp_path / "small")
    write_svmlight(made.test, tmp_path / "small.t")
    return tmp_path / "small"


def go(data: Path, *grid: str, task: str = "svm", **how: Any) -> tuple[int, dict[str, Any]]:
    out = data.parent / "out"

    def read(point: Sequence[str]) -> Config:
        return read_config(task, Flags(data=str(data), epochs=3, sets=list(point)))

    code = search(read_grid(grid), read, how.pop("folds", None), 1, out, False, False, **{"engine": "local"} | how)
    return code, json.loads((out / "results.json").read_text())


def test_points_are_compared_by_the_metric_that_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = go(data, "svm.class_weights=null,{'1': 1000}", by="recall")

    assert code == 0
    assert (found["measure"], found["best"]) == ("test_recall", 2)
    assert found["points"][1]["test_recall"] > found["points"][0]["test_recall"]
    assert "best: point 2 " in capsys.readouterr().out.splitlines()[-1]


def test_a_point_is_there_as_a_run_is_and_not_trained_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go(data, "seed=0,1")
    result = Result(data.parent / "out/points/point-2")
    again = go(data, "seed=0,1")

    assert (result.folder / "models/last.safetensors").is_file()
    assert set(result.metrics) >= {"test_accuracy", "test_f1", "test_majority", "test_loss"}
    assert result.history[-1].epoch == 3
    assert again[1]["points"][1]["test_accuracy"] == result.metrics["test_accuracy"]
    assert "2 of 2 runs are finished already" in capsys.readouterr().out


def test_points_are_chosen_by_rows_that_were_held_back(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = go(data, "seed=0,1", "data.validation=0.2")

    assert code == 0
    assert found["measure"] == "validation_accuracy"
    assert "No validation part was kept" not in capsys.readouterr().out
    examples = [Result(data.parent / f"out/points/point-{n}").folder / "run.json" for n in (1, 2)]
    assert [json.loads(each.read_text())["train_examples"] for each in examples] == [240, 240]


def test_missing_data_is_told_before_the_folder_is_made(data: Path) -> None:
    with pytest.raises(DataError, match=r"Can't read .*/nowhere: No such file"):
        go(data.with_name("nowhere"), "seed=0,1")
    assert not (data.parent / "out").exists()

    go(data, "seed=0,1")
    data.unlink()
    assert go(data, "seed=0,1")[0] == 0, "nothing is left to train"


def test_a_search_that_goes_on_asks_for_the_runs_that_are_left(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def ask(config: Config, yes: bool, runs: int = 1) -> None:
        asked.append(config.workers)
        raise UsageError("too many")

    monkeypatch.setattr("paceline.studies.search.search.refuse_too_many", ask)
    for _ in range(2):
        with pytest.raises(UsageError, match="too many"):
            go(data, "workers=1,50", engine="runs")
        assert not (data.parent / "out/search.json").exists()
        large = SearchFolder(data.parent / "out").run("point-2")
        large.path.mkdir(parents=True, exist_ok=True)
        large.write_facts(finished=True)

    assert asked == [50, 1]


def test_folds_are_made_here_too(data: Path) -> None:
    _, found = go(data, "svm.objective.c=0.1,1", folds=3, by="f1")

    assert found["folds"] == 3
    assert found["points"][0]["deviation"] > 0


def test_a_point_that_fails_does_not_end_the_search(data: Path) -> None:
    code, found = go(data, "batch_size=16,100000")

    assert code == ConfigError.exit_code
    assert "batch_size is 100,000" in found["points"][1]["error"]
    assert found["best"] == 1


def test_a_metric_that_nobody_measures_is_told(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"--by is 'max f2', but what is measured is: accuracy, f1, loss"):
        go(data, "seed=0", by="f2")


def test_a_metric_that_nobody_measures_is_told_at_the_first_point(data: Path) -> None:
    with pytest.raises(ConfigError, match="--by is 'max f2'"):
        go(data, "svm.objective.c=0.1,1", by="f2")

    assert len(list((data.parent / "out/points").glob("*/run.json"))) == 1


def test_settings_that_no_point_can_be_trained_with_are_refused_before_the_first(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"stopping looks at the scores of a run, .* set svm.stopping instead"):
        go(data, "stopping.patience=2,3")

    assert not (data.parent / "out").exists()


def test_a_setting_that_a_short_round_has_no_room_for_says_so(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"point 1 .*, in a round of --halving, where epochs is 1: .*milestones"):
        go(data, "svm.objective.c=1e-6,0.1,1", "schedule.name=multistep", "schedule.milestones=[2]", halving=3)


def test_halving_trains_all_points_a_little_and_the_best_ones_in_full(data: Path) -> None:
    code, found = go(data, "svm.objective.c=1e-6,0.1,1", halving=3)
    points = found["points"]
    full = max(points, key=lambda point: point["epochs_trained"])

    assert code == 0
    assert sorted(point["epochs_trained"] for point in points) == [1, 1, 3]
    assert found["best"] == full["point"]
    assert sorted(point["examples_trained"] / full["examples_trained"] for point in points) == [0.25, 0.25, 1]
    assert Result(data.parent / f"out/points/point-{full['point']}").history[-1].epoch == 3
    assert ": 66.7 %." in (data.parent / "out" / "results.md").read_text()


def test_a_halved_search_goes_on_where_it_was_ended(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, before = go(data, "svm.objective.c=1e-6,0.1,1", halving=3)
    last = SearchFolder(data.parent / "out").run(f"point-{before['best']}")
    last.write_facts(finished=False)
    capsys.readouterr()

    _, after = go(data, "svm.objective.c=1e-6,0.1,1", halving=3)

    assert "3 of 3 runs are finished already" in capsys.readouterr().out
    assert after["best"] == before["best"]
    assert last.facts()["finished"]


def test_points_that_fail_do_not_go_on(data: Path) -> None:
    code, found = go(data, "batch_size=100000,16,32", halving=3)

    assert code == ConfigError.exit_code
    assert [point["error"] is None for point in found["points"]] == [False, True, True]
    assert found["best"] in (2, 3)


def test_halving_is_there_for_folds_too(data: Path) -> None:
    _, found = go(data, "svm.objective.c=0.1,1,10", folds=2, halving=3)

    assert sorted(point["epochs_trained"] for point in found["points"]) == [1, 1, 3]


@pytest.mark.parametrize(
    ("grid", "told"),
    [
        ("seed=0,1", r"--halving 3: got 2 points of 3 epochs; expected at least 3 of each"),
        ("epochs=1,2,3", r"--grid epochs and --halving 3: both choose the epochs"),
    ],
)
def test_halving_of_what_has_no_smaller_part_is_refused(data: Path, grid: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        go(data, grid, halving=3)
    assert not (data.parent / "out").exists()


def test_what_can_not_be_trained_here_is_refused(data: Path) -> None:
    with pytest.raises(ConfigError, match=r"--engine local trains linear models, but task digits has updates: dense"):
        go(data, "seed=0", task="digits")
    with pytest.raises(UsageError, match=r"--engine fast: expected runs or local"):
        go(data, "seed=0", engine="fast")


def test_a_search_that_this_machine_is_too_small_for_asks_as_a_run_does(data: Path) -> None:
    def read(point: Sequence[str]) -> Config:
        return read_config("digits", Flags(workers=1000, sets=list(point)))

    with pytest.raises(UsageError, match=r"1,000 workers make 1,003 processes.*start anyway with --yes"):
        search(read_grid(["workers=1,1000"]), read, None, 2, data.parent / "out", False, False)
    assert not (data.parent / "out").exists()
