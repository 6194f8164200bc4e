"""The benchmark of sparse linear models at a tiny size, with real and made-up contenders."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import svm
from benchmarks.environments import NoEnvironment
from benchmarks.svm import Contender, Fit, Measured, contenders, measure, rows
from paceline.data.dataset import Dataset
from paceline.data.rcv1_like import rcv1_like, write_svmlight


@pytest.fixture(scope="module")
def data() -> Dataset:
    return rcv1_like(1000, 500, 800)


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm, "TURN", 1e-9)


def test_all_contenders_of_this_environment_are_measured(data: Dataset, tmp_path: Path) -> None:
    found = measure(contenders(data, tmp_path, others=False), 2, 0.7)
    assert [result.name for result in found if result.failure] == []
    assert all(len(result.fits) == 2 and result.accuracy >= 0.7 for result in found)
    assert [row.measure.split()[0] for row in rows(found)] == ["12", "of", "12", "of", "local,", "of"]


def test_a_contender_takes_the_fewest_passes_that_are_enough() -> None:
    asked: list[int] = []

    def fit(passes: int) -> Fit:
        asked.append(passes)
        return Fit(0.1 * passes, 0.9 + 0.01 * passes)

    (found,) = measure([Contender("slow learner", fit)], 3, 0.93)
    assert asked == [1, 2, 3, 3, 3, 3]
    assert (found.passes, found.accuracy) == (3, pytest.approx(0.93))


def test_a_contender_that_is_never_accurate_enough_is_told_and_not_compared() -> None:
    (found,) = measure([Contender("paceline local, 1 thread", lambda passes: Fit(1.0, 0.8))], 3)
    assert found.failure == "came to 0.8000 at most"
    assert rows([found, Measured("SGDClassifier", 1, [Fit(1.0, 0.95)])]) == []


def test_a_contender_that_is_not_installed_leaves_the_others_alone() -> None:
    def fit(_: int) -> Fit:
        raise NoEnvironment("no environment: there is no index")

    absent, there = measure([Contender("absent", fit), Contender("there", lambda _: Fit(1.0, 1.0))], 1)
    assert absent.failure == "no environment: there is no index"
    assert there.fits == [Fit(1.0, 1.0)]


def test_the_target_is_the_ratio_of_the_middle_times() -> None:
    ours = Measured("paceline local, 1 thread", 1, [Fit(1, 1), Fit(2, 1), Fit(9, 1)])
    theirs = Measured("SGDClassifier", 1, [Fit(4, 1), Fit(4, 1), Fit(1, 1)])
    found, fastest = rows([ours, theirs])
    assert (found.value, found.must, found.goal) == (0.5, 1.0, 0.6)
    assert fastest.value == 1


def test_a_quick_contender_trains_several_times_in_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm, "TURN", 1.0)
    quick, slow = (Contender(name, lambda _, s=s: Fit(s, 1.0)) for name, s in (("quick", 0.25), ("slow", 3.0)))
    assert [len(result.fits) for result in measure([quick, slow], 2)] == [8, 2]


def test_programs_elsewhere_get_the_rows_and_tell_time_and_accuracy(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        with np.load(command[3]) as arrays:
            assert arrays["indptr"][-1] == data.train.features.nnz
            assert len(arrays["test_labels"]) == 500
        return subprocess.CompletedProcess(command, 0, "noise\n" + json.dumps({"seconds": 2.0, "accuracy": 0.95}), "")

    monkeypatch.setattr(svm, "python_of", lambda *_: Path("python"))
    monkeypatch.setattr(svm.subprocess, "run", run)
    found = measure(contenders(data, tmp_path)[-2:], 1, 0.9)
    assert [result.fits for result in found] == [[Fit(2.0, 0.95)]] * 2


def test_accuracy_on_real_data_is_told_for_what_is_there(
    data: Dataset, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "agaricus").mkdir()
    write_svmlight(data.train, tmp_path / "agaricus" / "agaricus_127d_train.libsvm")
    ((name, accuracies),) = svm.real(tmp_path)
    assert name == "agaricus"
    assert all(accuracy > 0.6 for accuracy in accuracies.values())
    assert "a9a is not there: left out" in capsys.readouterr().err
