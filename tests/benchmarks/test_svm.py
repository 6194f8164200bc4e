"""The benchmark of sparse linear models at a tiny size, with real and made-up contenders."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from benchmarks import svm
from benchmarks.contender import WrongResult
from benchmarks.environments import NoEnvironment
from benchmarks.peers import paceline_svm, rpc_per_batch_svm
from benchmarks.peers.svm_team import Job, Team, Training, deal
from benchmarks.svm import Contender, Fit, Measured, contenders, measure, rows, shapes, teams
from benchmarks.svm_push import PushCost, push_costs
from paceline.data.dataset import Dataset
from paceline_papers.rcv1_like import rcv1_like, write_svmlight


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
    asked: list[float] = []

    def fit(passes: float) -> Fit:
        asked.append(passes)
        return Fit(0.1 * passes, 0.9 + 0.01 * passes)

    (found,) = measure([Contender("slow learner", fit)], 3, 0.93)
    assert asked == [1, 2, 3, 3, 3, 3]
    assert found.passes == 3
    assert found.accuracy == pytest.approx(0.93)


def test_a_contender_that_is_never_accurate_enough_is_told_and_not_compared() -> None:
    (found,) = measure([Contender("paceline local, 1 thread", lambda passes: Fit(1.0, 0.8))], 3)
    assert found.failure == "came to 0.8000 at most"
    assert rows([found, Measured("SGDClassifier", 1, [Fit(1.0, 0.95)])]) == []


def test_a_contender_that_is_not_installed_leaves_the_others_alone() -> None:
    def fit(_: float) -> Fit:
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
    quick, slow = Contender("quick", lambda _: Fit(0.25, 1.0)), Contender("slow", lambda _: Fit(3.0, 1.0))
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
    assert "a9a does not exist: left out" in capsys.readouterr().err


@pytest.fixture(scope="module")
def job(data: Dataset, tmp_path_factory: pytest.TempPathFactory) -> Job:
    """One worker, that has all rows."""
    folder = tmp_path_factory.mktemp("dealt") / "shards"
    deal(data.train, 1, folder)
    return Job(folder, workers=1)


class Fake:
    """A team that is said to have trained to the same weights each time."""

    jobs: ClassVar[list[Job]] = []

    def __init__(self, job: Job, *_: object) -> None:
        self.jobs.append(job)

    def __enter__(self) -> "Fake":
        return self

    def __exit__(self, *_: object) -> None:
        return

    def train(self, passes: float) -> Training:
        return Training(passes, 0.5, np.ones(800, np.float32), 3000, 2000)


@pytest.fixture
def no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fake, "jobs", [])
    monkeypatch.setattr(svm, "Team", Fake)


@pytest.mark.parametrize("side", [paceline_svm, rpc_per_batch_svm])
@pytest.mark.parametrize("passes", [1.5, 3])
def test_a_server_and_a_worker_learn_in_the_measured_time(side: Any, passes: float, job: Job, data: Dataset) -> None:
    told: list[str] = []
    with side.serve(job, 0, passes, "") as serving:
        side.work(job, 0, passes, [serving.address], lambda: told.append("ready"), lambda: told.append("done"))
        final = serving.final()
    assert told == ["ready", "done"]
    assert svm.accuracy_of(data, final.weights) > 0.7


def test_half_a_pass_pushes_about_half_as_much_as_a_whole_one(job: Job) -> None:
    received = []
    for passes in (0.5, 1):
        with paceline_svm.serve(job, 0, passes, "") as serving:
            paceline_svm.work(job, 0, passes, [serving.address], lambda: None, lambda: None)
            received.append(serving.final().received)
    assert 0.3 < received[0] / received[1] < 0.9


@pytest.mark.nightly  # 5 s of CPU time, for a benchmark that nothing else starts
def test_a_team_of_processes_trains_again_and_again(data: Dataset, tmp_path: Path) -> None:
    deal(data.train, 2, tmp_path / "shards")
    with Team(Job(tmp_path / "shards", batches=4), paceline_svm.serve, paceline_svm.work) as team:
        found = [team.train(1), team.train(1)]
    for training in found:
        assert svm.accuracy_of(data, training.weights) > 0.7
        assert min(training.seconds, training.cpu, training.received, training.sent) > 0


@pytest.mark.nightly  # by day test_benchmarks.py has one
def test_a_process_that_fails_ends_the_measurement(tmp_path: Path) -> None:
    with (
        Team(Job(tmp_path / "absent", workers=0), rpc_per_batch_svm.serve, rpc_per_batch_svm.work) as team,
        pytest.raises(WrongResult, match="ended early"),
    ):
        team.train(1)


@pytest.mark.usefixtures("no_processes")
def test_no_more_batches_are_in_flight_than_leave_the_accuracy_alone(data: Dataset, tmp_path: Path) -> None:
    with teams(data, tmp_path) as entries:
        assert [entry.fit(0.5).seconds for entry in entries] == [0.5] * 8
    assert [(job.workers, job.batches, job.overlap, job.policy, job.transport) for job in Fake.jobs] == [
        (2, 16, True, "asp", "grpc"),
        (2, 16, True, "asp", "lane"),
        (2, 16, True, "bsp", "grpc"),
        (2, 16, True, "everyone:overwrite", "grpc"),
        (2, 1, False, "asp", "grpc"),
        (2, 1, False, "asp", "lane"),
        (2, 1, False, "asp", "grpc"),
    ]


@pytest.mark.usefixtures("no_processes")
def test_shapes_tell_samples_and_bytes_of_every_team(data: Dataset, tmp_path: Path) -> None:
    found = list(shapes(data, tmp_path, (1, 4), (1, 2)))
    assert {(shape.job.workers, shape.job.servers, shape.job.batches) for shape in found} == {
        (1, 1, 16),
        (1, 2, 16),
        (4, 1, 8),
        (4, 2, 8),
    }
    assert {shape[1:] for shape in found} == {(1000.0, 500.0, 3.0, 2.0)}


def test_targets_over_grpc_are_ratios_to_linearsvc_and_to_an_rpc_per_batch() -> None:
    seconds = {"paceline gRPC": 1.0, "LinearSVC": 4.0, "an RPC per batch": 10.0}
    found = rows([Measured(name, 1, [Fit(time, 1)]) for name, time in seconds.items()])
    values = {row.measure[:2]: (row.value, row.must, row.goal) for row in found}
    assert values["10"] == (0.25, 0.6, 0.25)
    assert values["11"] == (0.1, 0.2, 0.06)


def test_a_push_to_a_slice_of_any_width_is_measured(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    found = list(push_costs((100, 100_000), 1000, 5))
    assert [(cost.width, cost.places) for cost in found] == [(100, 5), (100_000, 1000)]
    assert all(cost.seconds > 0 for cost in found)
    monkeypatch.setattr(svm, "push_costs", lambda: [PushCost(10**8, 20_000, 0.001, 4 * 10**8)])
    monkeypatch.setattr(sys, "argv", ["svm", "--only", "push"])
    svm.main()
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split() == ["100,000,000", "weights", "20,000", "1.000", "50", "400.0"]
