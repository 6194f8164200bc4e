"""`paceline run --repeats`: several seeds, what they give together, and runs that are not repeated."""

import json
from pathlib import Path

import pytest

from paceline.cli.repeats import summary
from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.launch.folder.series import series
from tests.support.commands import paceline

REPEAT = ("run", "digits", "-w", "1", "-s", "1", "--epochs", "1", "--run", "both", "--repeats", "2")


def test_two_runs_with_two_seeds_end_in_one_table_and_are_not_run_again(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = paceline(*REPEAT, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 runs" in done.stdout

    again = paceline(*REPEAT, "--json", cwd=tmp_path)
    found = json.loads(again.stdout)
    assert again.stderr.count("finished already") == 2
    assert [run["run"] for run in found["runs"]] == ["both-1", "both-2"]
    first, second = (run["test_accuracy"] for run in found["runs"])
    test = found["summary"]["test_accuracy"]
    assert test["mean"] == pytest.approx((first + second) / 2)
    assert test["variance"] == pytest.approx((first - second) ** 2 / 2)
    assert f"{test['mean']:.4f}" in done.stdout
    assert first != second


def test_a_series_that_fails_ends_with_the_exit_code_of_the_first_failure(tmp_path: Path) -> None:
    task = tmp_path / "broken.py"
    task.write_text("def data(path):\n    raise OSError('no disk')\n\n\ndef model():\n    pass\n")
    done = paceline("run", "./broken.py", "--run", "bad", "--repeats", "3", "--json", cwd=tmp_path)
    assert done.returncode == 65
    assert json.loads(done.stdout) == {"exit_code": 65, "runs": [], "summary": {}}
    assert "no disk" in done.stderr
    assert not (tmp_path / "runs/bad-2").exists()


def test_each_run_has_a_name_and_a_seed_of_its_own() -> None:
    found = series(Config(run="five", seed=7), 5)
    assert [(one.run, one.seed) for one in found] == [(f"five-{n + 1}", 7 + n) for n in range(5)]


def test_a_name_that_gets_too_long_is_refused() -> None:
    with pytest.raises(ConfigError, match="longer than 63 letters"):
        series(Config(run="x" * 62), 5)


def test_mean_and_variance_are_those_of_the_sample() -> None:
    runs = [{"test_loss": value, "test_accuracy": 0.5} for value in (1.0, 2.0, 3.0, 6.0)]
    # mean 3; squares of the differences 4 + 1 + 0 + 9 = 14, over n - 1 = 3
    assert summary(runs)["test_loss"] == {"mean": 3.0, "variance": pytest.approx(14 / 3), "runs": 4}
    assert summary(runs)["test_accuracy"]["variance"] == 0
    assert list(summary(runs)) == ["test_loss", "test_accuracy"]


def test_every_metric_of_the_task_is_summed_up_the_loss_first() -> None:
    runs = [{"test_mae": 1.0, "test_loss": 2.0, "train_loss": 1.0, "mean_test_loss": 5.0}, {"test_mae": 3.0}]
    found = summary(runs)
    assert list(found) == ["train_loss", "test_loss", "test_mae"]
    assert found["test_mae"] == {"mean": 2.0, "variance": 2.0, "runs": 2}


def test_one_run_has_no_variance() -> None:
    assert summary([{"train_loss": 0.25}]) == {"train_loss": {"mean": 0.25, "variance": None, "runs": 1}}
