"""The demo's tables and sentences, with given outcomes in place of runs."""

from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from paceline.cli import demo
from paceline.cli.demo import comparison, digits_demo, lesson, seconds_to, waiting
from paceline.core.chief.scoring import Score
from paceline.core.settings.config import Config
from paceline.launch.supervise.outcome import Outcome


def outcome(accuracy: float, seconds: float = 10.0, wait: float = 4.0) -> Outcome:
    scores = [Score(epoch, 2.0 * epoch, [epoch], {"test_accuracy": each}) for epoch, each in ((1, 0.9), (2, 0.96))]
    figures = {"worker-0": {"wait_seconds": 2 * wait}, "worker-1": {"wait_seconds": 0.0}}
    return Outcome(0, accuracy, seconds, scores, figures, examples=5000)


class Runs:
    """Plays the runs of a demo: the same outcome for each policy, or another."""

    def __init__(self, **outcomes: Outcome) -> None:
        self.outcomes = outcomes
        self.configs: list[Config] = []

    def __call__(self, config: Config, folder: Path, **_: Any) -> Outcome:
        self.configs.append(config)
        return self.outcomes.get(config.policy.name, outcome(0.97))


@pytest.fixture
def console(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Console:
    monkeypatch.chdir(tmp_path)
    return Console(file=StringIO(), width=120)


def printed(console: Console) -> str:
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_the_demo_runs_each_policy_in_both_conditions(console: Console) -> None:
    runs = Runs()

    code = digits_demo(console, None, runs)

    assert code == 0
    assert [config.policy.name for config in runs.configs] == ["bsp", "ssp", "shat"] * 2
    assert [config.slow for config in runs.configs[::3]] == [{"2": "10x"}, {"all": "10x@5%"}]
    assert printed(console).startswith("digits: 4 workers, 2 servers, 6 runs; about")


def test_an_accuracy_of_95_percent_is_not_enough(console: Console) -> None:
    assert digits_demo(console, None, Runs(shat=outcome(0.95))) == 1
    assert "not above 95%" in printed(console)


def test_who_chooses_the_epochs_is_not_told_of_a_bad_build(console: Console) -> None:
    assert digits_demo(console, 1, Runs(shat=outcome(0.4))) == 0
    assert "not above" not in printed(console)


def test_a_run_that_fails_ends_the_demo_with_its_code(console: Console) -> None:
    code = digits_demo(console, 1, Runs(ssp=Outcome(78, reason="a key is wrong")))

    assert code == 78
    assert "a key is wrong" in printed(console)


def test_the_table_compares_accuracy_time_speed_and_waiting(console: Console) -> None:
    console.print(comparison({"bsp": outcome(0.9741)}, "title"))

    row = next(line for line in printed(console).splitlines() if "bsp" in line)
    cells = [cell.strip() for cell in row.strip("│ ").split("│")]
    assert cells == ["bsp", "0.9741", "4.0 s", "10.0 s", "500", "4.0 s"]


def test_time_to_a_goal_is_that_of_the_first_score_above_it() -> None:
    assert seconds_to(outcome(0.97), 0.95) == 4.0
    assert seconds_to(outcome(0.97), 0.99) is None
    assert waiting(Outcome()) == 0.0


def test_the_lesson_is_told_in_the_numbers_of_the_runs() -> None:
    results = {"bsp": outcome(0.97, 20.0, 5.0), "ssp": outcome(0.97, 10.0, 3.0), "shat": outcome(0.97, 4.0, 0.0)}

    slow, random = (lesson(condition, results) for condition in demo.CONDITIONS)

    assert "bsp 5.0 s, ssp 3.0 s, shat 0.0 s" in slow
    assert "SHAT took 0.20 of BSP's time" in slow
    assert "SSP took 0.50 of BSP's time" in random


def test_cifar_is_trained_under_every_policy_for_one_epoch(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("cifar.tar.gz").touch()
    files = SimpleNamespace(settings={}, data=lambda path: SimpleNamespace(train=range(1000)))
    monkeypatch.setattr(demo, "load_task", lambda name: files)
    runs = Runs()

    code = demo.cifar_demo(console, "cifar.tar.gz", 1, runs)

    assert code == 0
    assert [(config.policy.name, config.epochs, config.data.path) for config in runs.configs] == [
        (policy, 1, "cifar.tar.gz") for policy in ("bsp", "ssp", "asp", "shat")
    ]
    assert "1,000 images, 1 epoch, 2 workers, 2 servers, 4 runs; about" in printed(console)
