"""Which runs can't be compared, and the sentence that says why."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from paceline.core.chief.best_model import Measure
from paceline.core.errors import ConfigError, DataError, UsageError
from paceline.launch.folder.run_folder import RunFolder
from paceline_studies.comparison.compare import compare_runs, compared
from tests.support.finished_run import finished_run
from tests.support.small_shards import made


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def refused(runs: Path, first: dict[str, Any], second: dict[str, Any]) -> str:
    folders = [finished_run(runs, name, **settings) for name, settings in (("one", first), ("two", second))]
    with pytest.raises(ConfigError) as error:
        compared(folders, None)
    return str(error.value)


def test_other_tasks(runs: Path) -> None:
    said = refused(runs, {}, {"task": "synthetic"})

    assert said.startswith("Runs 'one' and 'two' can't be compared: they trained other tasks, digits and synthetic")


def test_other_data(runs: Path) -> None:
    folders = [finished_run(runs, name) for name in ("one", "two")]
    settings = folders[1].settings().model_dump(mode="json")
    folders[1].rewrite({**settings, "data": {**settings["data"], "path": "elsewhere"}})

    with pytest.raises(ConfigError, match="they have other data, bundled and elsewhere"):
        compared(folders, None)


def test_data_split_in_other_ways(runs: Path) -> None:
    said = refused(runs, {}, {"data": {"validation": 0.2}})

    assert "(validation 0.15, test 0.15) and (validation 0.2, test 0.15)" in said
    assert "data.validation, data.test and data.fold" in said


def test_test_data_with_other_examples(runs: Path) -> None:
    folders = [finished_run(runs, name) for name in ("one", "two")]
    made(folders[0].shards, parts=("test", "validation"))
    made(folders[1].shards, parts=("validation", "test"))

    with pytest.raises(ConfigError, match="test and validation parts do not hold the same examples"):
        compared(folders, None)


def test_other_measures_unless_one_is_named_that_both_have(runs: Path) -> None:
    folders = [finished_run(runs, "one"), finished_run(runs, "two", measure="max f1")]

    with pytest.raises(ConfigError, match=r"judged by 'max accuracy', the second by 'max f1'.*--by loss"):
        compared(folders, None)
    with pytest.raises(ConfigError, match=r"--by, for run 'two'.*but what is measured is: f1, loss"):
        compared(folders, Measure("max", "accuracy"))


def test_scores_of_other_parts(runs: Path) -> None:
    folders = [finished_run(runs, "one", splits=("validation",)), finished_run(runs, "two", splits=("test",))]

    with pytest.raises(ConfigError, match=r"other parts of the data \(one: validation_accuracy; two: test_accuracy\)"):
        compared(folders, None)


def test_a_simulated_and_a_real_run(runs: Path) -> None:
    assert "the first is simulated and the second real" in refused(runs, {"simulated": True}, {})


def test_a_run_that_is_named_twice(runs: Path) -> None:
    run = finished_run(runs, "one")

    with pytest.raises(ConfigError, match="named twice"):
        compared([run, RunFolder(runs / "../runs/one")], None)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({"exit_code": None, "finished": False}, r"^Run 'two' can't be compared: it has not ended\..*paceline run"),
        (
            {"exit_code": 69, "finished": False, "reason": "servers are gone"},
            r"it ended with exit code 69: servers are gone\. It has no snapshot yet",
        ),
        ({"metrics": {}}, "it was not scored"),
    ],
    ids=["still trains", "failed", "without scores"],
)
def test_a_run_that_did_not_come_to_its_scores(runs: Path, facts: dict[str, Any], words: str) -> None:
    folders = [finished_run(runs, name) for name in ("one", "two")]
    folders[1].write_facts(**facts)

    with pytest.raises(DataError, match=f"(?s){words}"):
        compared(folders, None)


def test_damaged_runs(runs: Path) -> None:
    folders = [finished_run(runs, name) for name in ("one", "two", "three")]
    (folders[1].path / "run.json").write_text("{ no")
    folders[2].metrics.write_text("{ no\n")

    with pytest.raises(DataError, match=r"run.json is damaged"):
        compared(folders[:2], None)
    with pytest.raises(DataError, match=r"metrics.jsonl is missing or damaged"):
        compared([folders[0], folders[2]], None)
    os.remove(folders[1].path / "run.json")
    with pytest.raises(DataError, match="it was never started"):
        compared(folders[:2], None)


def test_runs_that_are_not_there_and_a_single_one(runs: Path) -> None:
    finished_run(runs, "one")

    with pytest.raises(UsageError, match=r"There is no run 'two'.*Newest ones: one"):
        compare_runs(["one", "two"], None, None, False)
    with pytest.raises(UsageError, match=r"compare got one run, one. Name two or more"):
        compare_runs(["one"], None, None, False)
    with pytest.raises(UsageError, match="compare got no run"):
        compare_runs([], None, None, False)


def test_a_folder_that_holds_something_else_is_left_alone(runs: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        finished_run(runs, name, policy={"name": {"one": "bsp", "two": "asp"}[name]})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/notes").write_text("mine")

    with pytest.raises(ConfigError, match="mine exists, but is not the folder of a comparison"):
        compare_runs(["one", "two"], None, Path("mine"), False)
    assert json.loads((runs / "one/run.json").read_text())["finished"]
