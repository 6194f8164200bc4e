"""The table of policies without settings: written-out gradients against torch's, trainings in virtual time, the rule by
which a combination is as good as plain torch, and a very small table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paceline.core.errors import UsageError
from paceline.core.settings.config import Config
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica
from paceline_papers.experiments import defaults_processes
from paceline_papers.experiments.defaults import POLICIES, main
from paceline_papers.experiments.defaults_cells import (
    NETWORKS,
    TORCH,
    USERS,
    Cell,
    CellResult,
    CellStore,
    config_of,
    plain_torch,
    planned,
    problem,
    run_cell,
)
from paceline_papers.experiments.defaults_table import compact, compared, full, references, summary
from paceline_papers.reproduce.processes import Outcome, Ran
from paceline_studies.simulator.problem import Chain
from paceline_studies.simulator.training import train
from paceline_studies.simulator.workers import Trained
from tests.support.nights import some

FOUND = {
    Cell(0, "digits", "sgd", 1, "equal", f"{TORCH} 0"): CellResult(0.95),
    Cell(0, "digits", "sgd", 1, "equal", f"{TORCH} 1"): CellResult(0.97),
    Cell(1, "digits", "sgd", 1, "equal", f"{TORCH} 0"): CellResult(0.90),
    Cell(1, "digits", "sgd", 1, "equal", f"{TORCH} 1"): CellResult(0.92),
    Cell(0, "digits", "sgd", 2, "equal", "ssp"): CellResult(0.95),
    Cell(1, "digits", "sgd", 2, "equal", "ssp"): CellResult(0.91),
    Cell(0, "digits", "sgd", 2, "slow", "ssp"): CellResult(0.93),
    Cell(1, "digits", "sgd", 2, "slow", "ssp"): CellResult(0.90),
    Cell(0, "digits", "sgd", 2, "slow", "easgd"): CellResult(0.93),
    Cell(1, "digits", "sgd", 2, "slow", "easgd"): CellResult(0.90),
    Cell(0, "digits", "sgd", 2, "equal", "dana"): CellResult(None, "it can't"),
}


def trained(folder: Path, policy: str, workers: int = 2, **settings: object) -> tuple[Config, Trained]:
    """The first epoch of digits in virtual time."""
    cell = Cell(0, "digits", "sgd", workers, str(settings.pop("cluster", "equal")), policy)
    config = config_of(cell).model_copy(update={"epochs": 1} | settings)
    return config, train(config, problem("digits", workers, 0, folder))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shards")


# gradients
@pytest.mark.parametrize("name", USERS)
def test_the_written_out_gradient_is_torchs(name: str, folder: Path) -> None:
    user, found = USERS[name], problem(name, 2, 0, folder)
    inputs, labels = (part[: user.batch] for part in found.shards[1])
    task = load_task(user.task)
    replica = Replica(task, seed=0)

    assert replica.local == pytest.approx(found.first)
    replica.model.zero_grad()
    task.loss(replica.model, torch.from_numpy(inputs), torch.from_numpy(labels)).backward()  # type: ignore[no-untyped-call]
    expected = np.concatenate([parameter.grad.numpy().ravel() for parameter in replica.model.parameters()])  # type: ignore[union-attr]
    assert found.net.gradient(found.first, inputs, labels) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("model", [nn.Conv2d(1, 1, 1), nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1))])
def test_another_network_is_refused(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="is not a chain of linear layers and ReLUs"):
        Chain(model)


# trainings
@pytest.mark.parametrize("policy", ["bsp", "ssp", "allreduce"])
def test_one_worker_does_what_torch_does(policy: str, folder: Path) -> None:
    config, found = trained(folder, policy, workers=1)
    model = plain_torch(config, 0, folder / "digits-1-0", found.pushes)

    expected = torch.cat([parameter.detach().ravel() for parameter in model.parameters()]).numpy()
    assert found.model == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("cluster", some(["equal", "slow"], ["slow"]))
@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_trains_all_examples_in_virtual_time(policy: str, cluster: str, folder: Path) -> None:
    config, found = trained(folder, policy, workers=4, cluster=cluster)

    examples = problem("digits", 4, 0, folder).examples
    assert examples <= found.examples <= examples + 20 * 4 * config.batch_size
    assert np.isfinite(found.model).all()


def test_a_seed_is_a_schedule(folder: Path) -> None:
    one, same, other = (trained(folder, "asp", seed=seed)[1] for seed in (0, 0, 1))

    assert np.array_equal(one.model, same.model)
    assert not np.array_equal(one.model, other.model)


def test_workers_that_are_ahead_wait_under_lock_step_and_not_under_asp(folder: Path) -> None:
    times = {policy: trained(folder, policy, cluster="slow")[1].time for policy in ("bsp", "asp")}

    assert times["bsp"] > 3 * times["asp"]


# the rule
def test_a_combination_is_as_good_within_a_point_or_the_spread() -> None:
    torch_there, results = references(FOUND)["digits", "sgd"], compared(FOUND)

    assert torch_there.mean == pytest.approx(0.935)
    assert torch_there.spread == pytest.approx(0.02 / 2**0.5)
    near, far = (results["digits", "sgd", 2, cluster, "ssp"] for cluster in ("equal", "slow"))
    assert (near.less, near.is_within) == (pytest.approx(0.005), True)
    assert (far.less, far.is_within) == (pytest.approx(0.02), False)
    assert results["digits", "sgd", 2, "equal", "dana"].note == "it can't"


def test_the_tables_name_what_is_worse_whether_its_run_says_so_and_what_is_refused() -> None:
    assert full(FOUND).splitlines()[2:] == [
        "| `ssp` | SGD, momentum | digits | 0.935 ± 0.014 | 0.930 | 0.915 **<** |",
        "| `easgd` | SGD, momentum | digits | 0.935 ± 0.014 |  | 0.915 < |",
        "| `dana` | SGD, momentum | digits | 0.935 ± 0.014 | refused |  |",
    ]
    assert compact(FOUND).splitlines()[2:] == [
        "| plain torch | 0.935 |  |  |  |  |",
        "| `ssp` | 0.922 | 1 of 2 |  | 1 | 0.915: digits, SGD, momentum, 2, one slow |",
        "| `easgd` | 0.915 | 0 of 1 | 1 |  | 0.915: digits, SGD, momentum, 2, one slow |",
        "| `dana` | refused | 0 of 0 |  |  |  |",
    ]
    assert summary(FOUND) == "11 runs, 1 of 3 combinations as good, 1 told, 1 silent"


# the command
def test_a_combination_that_is_refused_says_why(folder: Path) -> None:
    found = run_cell(Cell(0, "digits", "adam", 2, "equal", "ensemble"), folder)

    assert found.score is None
    assert "Policy ensemble" in found.note


def test_one_worker_has_no_slow_one_beside_it() -> None:
    clusters = {(cell.workers, cell.cluster) for cell in planned(["ssp"], ["wine"], ["sgd"], [1, 2], 1)}

    assert clusters == {(1, "equal"), (2, "equal"), (2, "slow")}


@pytest.mark.nightly  # real runs, for an experiment that nothing else starts
def test_in_a_very_small_table_nothing_is_worse_without_a_word_and_it_goes_on_where_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = {
        "policies": ["bsp", "asp", "local_sgd", "backup"],
        "tasks": "wine",
        "optimizers": "sgd,adam",
        "workers": "2",
        "seeds": 1,
        "out": tmp_path,
        "jobs": 1,
    }
    main(**options)  # type: ignore[arg-type]
    main(**options)  # type: ignore[arg-type]

    assert "22 runs, 22 of them to do" in (said := capsys.readouterr().out)
    assert "22 runs, 0 of them to do" in said
    assert said.count("| `bsp` | ") == 2
    assert said.count(" of 16 combinations as good, ") == said.count(" told, 0 silent") == 2
    assert len(CellStore(tmp_path / "runs.jsonl").found) == 22
    assert (tmp_path / "full.md").read_text().count("| wine |") == 8


def test_a_number_of_workers_that_is_none_is_refused() -> None:
    with pytest.raises(SystemExit) as left:
        main(workers="2,none")

    assert left.value.code == UsageError.exit_code


# real processes
def test_runs_in_processes_stand_beside_virtual_time_and_happen_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    configs: list[Config] = []
    monkeypatch.setattr(defaults_processes, "run", lambda config: configs.append(config) or ran(0.95))
    CellStore(tmp_path / "runs.jsonl").add(Cell(0, "digits", "sgd", 2, "slow", "asp"), CellResult(0.96))

    for _ in range(2):
        main(["asp", "bsp"], "digits", "sgd,adam", "2", 1, out=tmp_path, processes=True)

    assert len(configs) == 2 * 2 * 2
    lines = capsys.readouterr().out.splitlines()
    assert "| `asp` | SGD, momentum | digits | 2, one slow | 0.950 | 0.960 | 1 |" in lines
    assert "| `bsp` | Adam | digits | 2 | 0.950 |  | 1 |" in lines
    assert {config.nominal_step for config in configs} == {defaults_processes.STEP}


def test_the_users_pictures_train_in_processes_beside_plain_torch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths: list[str] = []
    monkeypatch.setattr(defaults_processes, "run", lambda config: paths.append(config.data.path) or ran(0.4))
    monkeypatch.setattr(defaults_processes, "plain", lambda cell, folder, data: 0.5)

    main(["ssp", "shat"], "cnn,transformer", "sgd,adam", "4", 1, out=tmp_path, processes=True, data="cifar.tar.gz")

    lines = (tmp_path / "full.md").read_text().splitlines()
    assert "| `ssp` | SGD, momentum | cnn | 0.500 ± 0.000 | 0.400 **<** | 0.400 **<** |" in lines
    assert "| `shat` | SGD, momentum | cnn | 0.500 ± 0.000 | 0.400 < | 0.400 < |" in lines
    assert sorted(set(paths)) == ["bundled", "cifar.tar.gz"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": "cifar.tar.gz"}, "add --processes"),
        ({"tasks": "cnn", "processes": True}, "cnn"),
        ({"tasks": "transformer", "optimizers": "sgd"}, "has a rate"),
    ],
)
def test_what_could_train_nothing_is_refused(
    options: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        main(out=tmp_path, **options)

    assert end.value.code == UsageError.exit_code
    assert message in capsys.readouterr().err


def test_the_transformer_learns_a_task_with_an_answer() -> None:
    task = load_task(NETWORKS["transformer"].task)
    train = task.data("bundled").train
    inputs, labels = task.prepare(train.features[:5], train.labels[:5], None)

    counts = np.stack([np.bincount(letters, minlength=8) for letters in train.features])
    assert (counts[range(6000), train.labels] == counts.max(1)).all()
    assert task.loss(task.model(), inputs, labels).item() == pytest.approx(np.log(8), abs=1)


def test_the_gpt_says_the_next_character_of_a_real_text(folder: Path) -> None:
    task = load_task(NETWORKS["characters"].task)
    train = task.data("bundled").train
    inputs, labels = task.prepare(train.features[:2], train.labels[:2], None)
    model = task.model()
    later = inputs.clone()
    later[:, 20:] = 0

    assert (inputs[:, 1:] == labels[:, :-1]).all()
    assert task.loss(model, inputs, labels).item() == pytest.approx(np.log(128), abs=1)
    assert torch.allclose(model(inputs)[..., :20], model(later)[..., :20], atol=1e-5)
    assert 0.95e6 < sum(each.numel() for each in model.parameters()) < 1.1e6


def test_the_convolutions_train_in_virtual_time(folder: Path) -> None:
    cell = Cell(0, "digits_cnn", "adam", 2, "equal", "asp")
    config = config_of(cell).model_copy(update={"epochs": 1})
    found = problem("digits_cnn", 2, 0, folder)
    assert found.score(train(config, found).model) > 0.5


def ran(score: float) -> Ran:
    return Ran(Outcome({"test_accuracy": score}, 1.0, []), [])
