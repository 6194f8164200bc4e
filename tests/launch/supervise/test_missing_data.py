"""A new run whose data is not there is refused before its folder is made or anything is started."""

from pathlib import Path

import pytest

from paceline.core.errors import DataError
from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import open_run
from paceline.tasks.task import load_config

OWN = "def data(path):\n    raise AssertionError(path)\n\ndef model():\n    pass\n"


def asks(task: str, path: str) -> Config:
    return load_config(overrides={"task": task, "data": {"path": path}, "run": "one"})


@pytest.mark.parametrize(
    ("task", "path", "told"),
    [
        ("svm", "nowhere/a9a", "Can't read nowhere/a9a: No such file"),
        ("svm", "a9a", "Can't read a9a: No such file"),
        ("cifar10", "nowhere/cifar", "There is no CIFAR-10 at nowhere/cifar. Get the binary version"),
    ],
)
def test_the_task_says_what_is_missing_and_nothing_is_written(
    task: str, path: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match=told):
        open_run(asks(task, path), runs=tmp_path / "runs")
    assert not list(tmp_path.iterdir())


def test_a_run_that_has_begun_no_longer_needs_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a9a").write_text("+1 1:1\n")
    config = asks("svm", "a9a")
    open_run(config, runs=tmp_path / "runs")
    (tmp_path / "a9a").unlink()

    assert open_run(config, runs=tmp_path / "runs")[0].config.is_file()


def test_a_run_whose_data_is_missing_is_not_removed_to_start_it_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a9a").write_text("+1 1:1\n")
    before, _ = open_run(asks("svm", "a9a"), runs=tmp_path / "runs")

    with pytest.raises(DataError, match="Can't read a8a"):
        open_run(asks("svm", "a8a"), fresh=True, runs=tmp_path / "runs")
    assert before.config.is_file()


def test_a_word_that_only_a_users_own_task_knows_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)

    assert open_run(asks(str(tmp_path / "own.py"), "few"), runs=tmp_path / "runs")[0].config.is_file()
