"""The engine `paceline`: a real run on the rows of a split."""

import json
from contextlib import suppress
from threading import Event, Thread

import numpy as np
import psutil
import pytest
from sklearn.metrics import accuracy_score

from paceline.core.errors import PacelineError
from paceline_papers.baseline import rows_task
from paceline_papers.baseline import split as splits
from paceline_papers.baseline.baseline import Baseline, Wanted, table
from paceline_papers.baseline.engine import Point, engine
from paceline_papers.baseline.models.lr import Lr
from paceline_papers.baseline.results import Results

WANTED = Wanted(["lr"], ["paceline", "sklearn"], [2], ["memory"])


@pytest.mark.nightly  # 9 s of CPU time, for `paceline baseline` alone
def test_a_run_is_at_least_as_good_as_scikit_learn_and_both_are_in_one_table(tmp_path):
    baseline = Baseline("fire-like", 5_000, 0, tmp_path)
    list(baseline.train(WANTED))
    Results(baseline, WANTED).write()

    told = json.loads((tmp_path / "results.json").read_text())
    found = {(run["engine"], run["variant"]): run for run in told["runs"]}
    own, other = (found[name, "lr, 20 steps"] for name in ("paceline", "sklearn"))
    assert own["accuracy"] > other["accuracy"] - 0.02
    assert own["log_loss"] < 1.02 * other["log_loss"]
    assert sum(map(sum, own["confusion"])) == told["test_rows"]
    assert own["training"] > 0
    assert own["cpu"] > 0
    assert "| paceline | lr, 20 steps | onehot |" in (tmp_path / "table.txt").read_text()


@pytest.mark.nightly  # a second run; the servers' L1 is tried by day in tests/worker/linear/test_linear_ftrl.py
def test_the_servers_l1_leaves_about_the_weights_that_scikit_learns_does(tmp_path):
    split = splits.make_up(table("fire-like"), 5_000, 0, tmp_path / "data")
    own, other = (
        found
        for name in ("paceline", "sklearn")
        for _, found in engine(name).train(split, [Point(name, "l1", "lr, L1 0.001", "onehot")], tmp_path)
    )

    assert own["log_loss"] == pytest.approx(other["log_loss"], rel=0.05)
    assert own["weights"] == pytest.approx(other["weights"], rel=0.5)


def kill_a_worker(log, is_over):
    """Kills worker-1 of this process's run once the log says that it trains."""
    while not is_over.wait(0.05):
        if log.exists() and "\ntraining " in log.read_text():
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if any(file.path.endswith("worker-1.log") for file in process.open_files()):
                        process.kill()
                        return


@pytest.mark.nightly  # 35 s of CPU time; kills of workers are tried by day in tests/runs
def test_a_worker_that_is_killed_in_mid_training_costs_no_accuracy(tmp_path, monkeypatch):
    settings = {"epochs": 60, "svm.objective.loss": "softmax", "svm.objective.lam": 0}
    monkeypatch.setattr(Lr, "paceline", lambda self, setting, rows: settings)
    split = splits.make_up(table("fire-like"), 5_000, 0, tmp_path / "data")
    point, is_over, logs = Point("paceline", "lr", "lr, 20 steps", "onehot", 2), Event(), tmp_path / "killed"
    ((_, whole),) = engine("paceline").train(split, [point], tmp_path / "whole")
    killer = Thread(target=kill_a_worker, args=(logs / "paceline.log", is_over))
    killer.start()
    try:
        ((_, killed),) = engine("paceline").train(split, [point], logs)
    finally:
        is_over.set()
        killer.join()

    assert (logs / "paceline.log").read_text().count("worker-1 was killed (SIGKILL)") == 1
    right, other = (np.trace(found["confusion"]) / split.test_rows for found in (whole, killed))
    assert other == pytest.approx(right, abs=0.02)
    assert killed["log_loss"] == pytest.approx(whole["log_loss"], rel=0.03)


def test_a_run_that_fails_is_named_with_its_log(tmp_path, monkeypatch):
    monkeypatch.setattr(Lr, "paceline", lambda self, setting, rows: {"optimizer.lr": -1})
    split = splits.make_up(table("fire-like"), 500, 0, tmp_path / "data")

    with pytest.raises(PacelineError, match=r"paceline run ended with exit code 78\. Its log: .*paceline\.log"):
        list(engine("paceline").train(split, [Point("paceline", "lr", "lr, 3 steps", "onehot")], tmp_path / "logs"))
    assert "lr" in (tmp_path / "logs" / "paceline.log").read_text()


def test_a_small_table_has_a_hundred_pushes_an_epoch_and_a_large_one_large_pushes():
    assert [rows_task.batches(rows) for rows in (100, 3_200, 210_000, 5_000_000)] == [1, 2, 128, 128]


def test_scores_are_those_of_scikit_learn():
    from sklearn.metrics import confusion_matrix, log_loss

    from paceline_papers.baseline.engines.paceline import _confusion, _log_loss

    rng = np.random.default_rng(0)
    labels, margins = rng.integers(0, 3, 50), rng.normal(size=(50, 3)) * 5
    chances = np.exp(margins) / np.exp(margins).sum(1, keepdims=True)

    assert _log_loss(labels, margins) == pytest.approx(log_loss(labels, chances))
    found = _confusion(labels, margins.argmax(1), 3)
    assert found == confusion_matrix(labels, margins.argmax(1)).tolist()
    assert np.trace(found) / 50 == accuracy_score(labels, margins.argmax(1))
