"""A search of linear models in its own process (`--engine local`): what it keeps, chooses, stops and refuses."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("optuna")

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from paceline.core.errors import ConfigError, DataError, DiskError, UsageError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.settings.read_config import read_config
from paceline.results.result import Result
from paceline.settings.flags import Flags
from paceline_papers.rcv1_like import rcv1_like, write_svmlight
from paceline_studies.search import search as whole
from paceline_studies.search.folder import SearchFolder, content_of, opened
from paceline_studies.search.grid import read_grid
from paceline_studies.search.results import measure_by
from paceline_studies.search.search import search
from paceline_studies.search.study import Plan

C = "svm.objective.c=log:1e-6..10"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    made = rcv1_like(300, 100, features=500)
    assert made.test is not None
    write_svmlight(made.train, tmp_path / "small")
    write_svmlight(made.test, tmp_path / "small.t")
    return tmp_path / "small"


def plan(data: Path, *grid: str, task: str = "svm", **how: Any) -> Plan:
    def read(point: Sequence[str]) -> Config:
        return read_config(task, Flags(data=str(data), epochs=3, sets=list(point)))

    return Plan(**{"grid": read_grid(grid), "read": read, "engine": "local"} | how)


def go(data: Path, *grid: str, out: str = "out", fresh: bool = False, **how: Any) -> tuple[int, dict[str, Any]]:
    code = search(plan(data, *grid, **how), data.parent / out, fresh, cores=1)
    return code, json.loads((data.parent / out / "results.json").read_text())


def study_in(folder: Path) -> Any:
    return optuna.load_study(study_name="search", storage=JournalStorage(JournalFileBackend(str(folder / "study.log"))))


class Trained:
    """Names of the runs that were begun; a Ctrl-C ends the one of this number."""

    def __init__(self) -> None:
        self.names = list[str]()
        self.ends_at = 0


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    train, found = whole.train_point, Trained()

    def noted(config: Config, folder: RunFolder) -> None:
        found.names.append(str(config.run))
        if len(found.names) == found.ends_at:
            raise KeyboardInterrupt
        train(config, folder)

    monkeypatch.setattr(whole, "train_point", noted)
    return found


def test_points_are_compared_by_the_metric_that_is_named(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = go(data, "svm.class_weights=null,{'1': 1000}", by=measure_by("recall"))

    assert (code, found["measure"], found["best"]) == (0, "test_recall", 2)
    assert "best: point 2 " in capsys.readouterr().out.splitlines()[-1]
    with pytest.raises(ConfigError, match="--by is 'max f2'"):
        go(data, "seed=0,1", by=measure_by("f2"), fresh=True)
    assert len(list((data.parent / "out/points").glob("*/run.json"))) == 1, "it is known after the first point"


def test_a_point_is_there_as_a_run_is_and_not_trained_again(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    go(data, "seed=0,1", "data.validation=0.2")
    result = Result(data.parent / "out/points/point-2")
    _, again = go(data, "seed=0,1", "data.validation=0.2")

    assert (result.folder / "models/last.safetensors").is_file()
    assert set(result.metrics) >= {"test_accuracy", "test_f1", "test_majority", "test_loss"}
    assert (again["points"][1]["test_accuracy"], again["measure"]) == (
        result.metrics["test_accuracy"],
        "validation_accuracy",
    )
    assert "2 of 2 points are finished already" in capsys.readouterr().out
    data.unlink()
    assert go(data, "seed=0,1", "data.validation=0.2")[0] == 0, "nothing is left to train"


def test_the_study_is_there_for_optuna_to_read(data: Path) -> None:
    _, found = go(data, "svm.objective.c=1e-6,1", "svm.class_weights=null,{'1': 2}")
    study = study_in(data.parent / "out")

    assert study.best_trial.user_attrs["point"] == found["best"]
    assert study.best_value == pytest.approx(max(point["test_accuracy"] for point in found["points"]))
    assert study.trials[1].params == {"svm.objective.c": 1e-6, "svm.class_weights": '{"1": 2}'}


def test_points_that_fail_do_not_end_the_search_and_start_over_in_the_next_one(data: Path) -> None:
    code, found = go(data, "batch_size=16,100000")
    again = go(data, "batch_size=16,100000")

    assert code == again[0] == ConfigError.exit_code
    assert "batch_size is 100,000" in found["points"][1]["error"]
    assert found["best"] == again[1]["best"] == 1
    assert [trial.user_attrs["point"] for trial in study_in(data.parent / "out").trials] == [1, 2, 2]


def test_folds_that_are_finished_stay(data: Path, trained: Trained) -> None:
    trained.ends_at = 2
    first = go(data, "svm.objective.c=0.1,1", folds=2, by=measure_by("f1"))
    code, found = go(data, "svm.objective.c=0.1,1", folds=2, by=measure_by("f1"))

    assert (first[0], [point["error"] for point in first[1]["points"]]) == (130, ["not run", "not run"])
    assert (code, found["folds"]) == (0, 2)
    assert trained.names[1:3] == ["point-1-fold-1", "point-1-fold-1"]
    assert found["points"][0]["deviation"] > 0


def test_halving_trains_all_points_a_little_and_the_best_ones_in_full(data: Path, trained: Trained) -> None:
    grid = "svm.objective.c=1e-6,1e-5,1e-4,0.1,1,10"
    uninterrupted = go(data, grid, halving=3, out="whole")
    count = len(trained.names)
    trained.ends_at = count + 2
    first, (code, found) = go(data, grid, halving=3), go(data, grid, halving=3)
    points = found["points"]

    assert (uninterrupted[0], first[0], code) == (0, 130, 0)
    assert found["best"] == uninterrupted[1]["best"]
    assert len(trained.names) == 2 * count + 1, "a Ctrl-C costs the run that it ends"
    in_full = {point["point"] for point in points if point["epochs_trained"] == 3}
    assert 0 < len(in_full) < 5
    assert found["best"] in in_full
    assert len({point["examples_trained"] for point in points}) == 2
    states = [trial.state.name for trial in study_in(data.parent / "out").trials]
    assert (states.count("COMPLETE"), states.count("PRUNED")) == (len(in_full), 6 - len(in_full))


def test_halving_goes_with_folds_samples_and_points_that_fail(data: Path) -> None:
    code, found = go(data, "batch_size=100000,16,32", halving=3, folds=2)
    assert (code, found["points"][0]["error"] is None) == (ConfigError.exit_code, False)
    assert found["best"] in (2, 3)

    code, found = go(data, C, halving=3, sample="tpe", points=6, out="sample")
    assert (code, len(found["points"])) == (0, 6)


@pytest.mark.parametrize("sampler", ["random", "tpe"])
def test_a_sample_that_was_ended_goes_on_as_it_would_have_and_with_more_points(
    data: Path, trained: Trained, sampler: str
) -> None:
    grid = (C, "batch_size=8..64", "optimizer.lr=0.1,0.2", "svm.class_weights=null,{'1': 2}")
    _, before = go(data, *grid, sample=sampler, points=13, out="whole")
    values = [point["values"] for point in before["points"]]
    trained.ends_at = 13 + 12
    first, (code, after) = go(data, *grid, sample=sampler, points=12), go(data, *grid, sample=sampler, points=13)

    assert (first[0], code) == (130, 0)
    assert [point["values"] for point in after["points"]] == values
    assert all(1e-6 <= each["svm.objective.c"] <= 10 and 8 <= each["batch_size"] <= 64 for each in values)
    assert all(values.count(each) == 1 and isinstance(each["batch_size"], int) for each in values)
    _, other = go(data, *grid, sample=sampler, points=2, seed=1, out="other")
    assert other["points"][0]["values"] != values[0]


@pytest.mark.parametrize("refused", [[3], [2, 3]])
def test_a_combination_that_settings_refuse_is_not_chosen(
    data: Path, refused: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    def read(point: Sequence[str]) -> Config:
        if "batch_size=16" in point and any(f"workers={workers}" in point for workers in refused):
            raise ConfigError("not together")
        return read_config("svm", Flags(data=str(data), epochs=1, sets=list(point)))

    code, found = go(data, "batch_size=8,16", "workers=1,2,3", sample="tpe", points=5, read=read)

    values = [point["values"] for point in found["points"]]
    assert (code, len(values)) == (0, 6 - len(refused))
    assert not any({"batch_size": 16, "workers": workers} in values for workers in refused)
    assert ("there are only 4 different points" in capsys.readouterr().out) is (len(refused) == 2)


def test_what_is_wrong_is_found_before_the_folder_is_made(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    milestones = "schedule.name=multistep", "schedule.milestones=[2]"
    sample = {"sample": "tpe", "points": 5}
    for message, grid, how in (
        (r"stopping looks at the scores of a run, .* set svm.stopping instead", ["stopping.patience=2,3"], {}),
        ("--engine local trains linear models, but task digits has updates: dense", ["seed=0"], {"task": "digits"}),
        (r"point 1 \(batch_size=3, workers=0", ["batch_size=3..9", "workers=0..4"], sample),
        ("--halving 3: got 2 points of 3 epochs", ["seed=0,1"], {"halving": 3}),
        (r"1,000 workers make .*start anyway with --yes", ["workers=1,1000"], {"engine": "runs"}),
        (r"in a round of --halving, where epochs is 1: .*milestones", ["seed=0,1,2", *milestones], {"halving": 3}),
    ):
        with pytest.raises((ConfigError, UsageError), match=message):
            go(data, *grid, **how)
    with pytest.raises(DataError, match=r"Can't read .*/nowhere: No such file"):
        go(data.with_name("nowhere"), "seed=0,1")
    assert not (data.parent / "out").exists()


def test_a_search_goes_on_only_with_what_it_began_with(data: Path) -> None:
    go(data, "seed=0,1")
    kept = data.parent / "out/points/point-1/run.json"
    for grid, how, message in (
        ("seed=0,1,2", {}, r"grid\.seed: \[0, 1\] before, \[0, 1, 2\] now"),
        ("seed=0,1", {"folds": 2}, "folds: None before, 2 now"),
    ):
        with pytest.raises(ConfigError, match=message):
            go(data, grid, **how)
    before = kept.read_text()
    go(data, "seed=0,1,2", fresh=True)
    assert kept.read_text() != before


def test_another_version_of_a_users_file_is_another_search(tmp_path: Path) -> None:
    task, policy = tmp_path / "mine.py", tmp_path / "own.py"
    for file in (task, policy):
        file.write_text("first = 1\n")
    config = Config.model_validate({"task": str(task), "policy": {"name": str(policy)}})
    before = content_of([config])
    policy.write_text("second = 2\n")

    with pytest.raises(ConfigError, match=r"content\..*own\.py: '[0-9a-f]{8}' before, '[0-9a-f]{8}' now"):
        SearchFolder(tmp_path).refuse_other(before, content_of([config]))
    assert list(content_of([config], ["policy"])["content"]) == [str(task)]
    assert content_of([Config()]) == {}


def test_a_folder_of_something_else_is_left_alone(data: Path, tmp_path: Path) -> None:
    for name, content, fresh, message in (
        ("mine.txt", "", True, "is not the folder of a search"),
        (
            "search.json",
            "{}",
            False,
            r"a search of an earlier Paceline \(there is a search.json\).*give --out another folder",
        ),
        ("study.log", "{\n{\n", False, r"Can't read .*study\.log: .*--fresh"),
    ):
        folder = tmp_path / f"of-{name}"
        folder.mkdir()
        (folder / name).write_text(content)
        with pytest.raises(ConfigError, match=message):
            go(data, "seed=0,1", out=folder.name, fresh=fresh)
        assert (folder / name).read_text() == content
    assert go(data, "seed=0,1", out="of-search.json", fresh=True)[0] == 0
    assert not (tmp_path / "of-search.json" / "search.json").exists()
    with pytest.raises(DiskError, match="Can't use the search folder"):
        go(data, "seed=0,1", out="small/x")


def test_what_a_killed_process_left_half_done_is_mended(data: Path) -> None:
    _, before = go(data, "seed=0,1")
    with (data.parent / "out/study.log").open("a") as file:
        file.write('{"op_code": 4, "work')
    (data.parent / "out/study.log.lock").symlink_to("study.log")

    assert go(data, "seed=0,1")[1] == before


def test_a_second_process_is_kept_out(data: Path, tmp_path: Path) -> None:
    with opened(SearchFolder(tmp_path / "out"), False), pytest.raises(ConfigError, match="is going on already"):
        go(data, "seed=0,1")


def test_there_is_a_page_and_a_picture_where_a_key_varies(data: Path) -> None:
    pytest.importorskip("matplotlib")
    for grid, has_picture in ((["seed=0"], False), (["seed=0,1"], True), (["seed=0,1", "svm.objective.c=1,2"], True)):
        go(data, *grid, fresh=True)
        assert "best: point" in (data.parent / "out/results.html").read_text()
        assert (data.parent / "out/results.png").exists() == has_picture
