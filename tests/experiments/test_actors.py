"""[Actors]' experiment at a small size: the written-out gradient against torch's, runs in virtual time, the table, and real
processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from experiments.actors import FORMS, Study, broadcast, fits, main, setting_of
from experiments.actors_pictures import Line
from experiments.actors_processes import TASK
from experiments.actors_virtual import (
    HIDDEN,
    LENGTH,
    SHAPES,
    Centralised,
    Decentralised,
    Setting,
    gradient,
    outputs,
)
from paceline.core.errors import ConfigError, UsageError
from paceline.core.values import Vector
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica

CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
LABELS = np.array([0, 1, 1, 0])


def small(workers: int = 4, examples: int = 60, seed: int = 0, own_first: bool = False, delay: float = 1.0) -> Setting:
    return setting_of(seed, workers, examples, delay, own_first)


def one_after_another(model: Vector, corners: Any, lr: float) -> float:
    """Plain SGD in place; the sum of the squared derivatives by the logit."""
    published = 0.0
    for corner in corners:
        found, delta = gradient(model, corner)
        model -= np.float32(lr) * found
        published += delta**2
    return published


# the network
@pytest.mark.parametrize("seed", range(5))
def test_the_written_out_network_is_the_tasks(seed: int) -> None:
    replica = Replica(load_task(TASK), seed=seed)
    replica.load(np.random.default_rng(seed).normal(size=LENGTH).astype(np.float32))

    assert replica.shapes == SHAPES
    for corner in range(4):
        found, delta = gradient(replica.local, corner)
        step = replica.gradient(CORNERS[corner : corner + 1], LABELS[corner : corner + 1], 0, None)
        assert found == pytest.approx(step.gradient, abs=1e-6)
        assert found[-1] == pytest.approx(delta)
    with torch.no_grad():
        expected = replica.model(torch.from_numpy(CORNERS))[:, 0].sigmoid().numpy()
    assert outputs(replica.local[None].astype(np.float64))[0] == pytest.approx(expected, abs=1e-6)


def test_the_task_has_exact_examples_and_measures_the_squared_error() -> None:
    task = load_task(TASK)
    data = task.data("400")

    assert len(data.train) == 400
    assert set(map(tuple, data.train.features.tolist())) == set(map(tuple, CORNERS.tolist()))
    assert data.train.labels.tolist() == [int(a != b) for a, b in data.train.features]
    metrics = task.metrics(torch.zeros(4, 1), torch.from_numpy(LABELS))
    assert {name: float(value) for name, value in metrics.items()} == {"accuracy": 0.5, "squared_error": 0.25}


@pytest.mark.parametrize("path", ["99", "many"])
def test_another_number_of_examples_than_there_can_be_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=rf"data\.path of the task actors_xor is '{path}'; .*\(100 or more\)"):
        load_task(TASK).data(path)


# centralised
def test_a_data_shard_of_2_000_examples_receives_the_papers_18_009_values() -> None:
    assert Centralised(small(workers=1, examples=2000), 0.5).run().updates == 18_009


def test_one_worker_and_servers_are_plain_sgd() -> None:
    setting = small(workers=1)
    expected = setting.first[0].copy()
    published = one_after_another(expected, setting.corners[0], 0.5)

    training = Centralised(setting, 0.5)
    found = training.run()

    assert training.models[0] == pytest.approx(expected, abs=1e-6)
    assert found.published == pytest.approx(published / 60, rel=1e-4)
    errors = (outputs(expected[None].astype(np.float64))[0] - LABELS) ** 2
    assert found.error == pytest.approx(errors[setting.corners[0]].mean(), rel=1e-4)
    assert found.of_mean == pytest.approx(found.error)


def test_every_push_of_many_workers_is_folded_once_and_steps_overlap() -> None:
    training = Centralised(small(), 0.5)

    found = training.run()

    assert [server.clocks.pushes for server in training._slices] == [240, 240]
    assert [server.version for server in training._slices] == [240, 240]
    assert found.updates == 9 * 61
    assert max(entry.staleness for entry in training._slices[0].clocks.table.values()) > 0


# decentralised
def test_a_lone_worker_that_takes_its_gradients_is_plain_sgd() -> None:
    setting = small(workers=1)
    expected = setting.first[0].copy()
    one_after_another(expected, setting.corners[0], 0.5)

    training = Decentralised(setting, 0.5, broadcast(0.5, "gradient"))

    assert training.run().updates == 0
    assert training.models[0] == pytest.approx(expected, abs=1e-6)


def test_all_have_one_model_where_senders_take_what_they_send() -> None:
    training = Decentralised(small(), 0.5, broadcast(0.1, "message"))

    found = training.run()

    assert found.updates > 0
    assert np.ptp(training.models, axis=0) == pytest.approx(np.zeros(LENGTH), abs=1e-5)
    assert found.error == pytest.approx(found.of_mean, abs=1e-5)


def test_nothing_is_learned_from_what_nobody_sends_where_senders_take_what_they_send() -> None:
    setting = small()

    training = Decentralised(setting, 0.5, broadcast(1e6, "message"))

    assert training.run().updates == 0
    assert all(np.array_equal(model, setting.first[0]) for model in training.models)


def test_what_a_worker_receives_falls_as_tau_rises() -> None:
    updates = [Decentralised(small(), 0.5, broadcast(tau, "gradient")).run().updates for tau in (0.05, 0.2, 0.8)]

    assert updates == sorted(updates, reverse=True)
    assert 0 < updates[-1] < updates[0] <= LENGTH * 60 * 3


def test_the_authors_program_sends_output_layers_only() -> None:
    setting = small(own_first=True)
    silent = Decentralised(setting, 0.5, broadcast(1e6, "gradient"), output_only=True)
    training = Decentralised(setting, 0.5, broadcast(1e-9, "gradient"), output_only=True)

    silent.run()
    found = training.run()

    assert found.updates == (LENGTH - HIDDEN) * 60 * 3
    assert np.ptp(training.models, axis=0)[:HIDDEN].min() > 0.01
    alone = setting.first[1].copy()
    one_after_another(alone, setting.corners[1], 0.5)
    assert silent.models[1] == pytest.approx(alone, abs=1e-6)


def test_a_seed_decides_all_and_the_delay_some() -> None:
    def trained(**more: Any) -> Any:
        return Decentralised(small(**more), 0.5, broadcast(0.1, "gradient")).run()

    assert trained() == trained()
    assert trained() != trained(seed=1)
    assert trained() != trained(delay=5.0)


# the command
def test_the_best_of_the_rates_is_kept_for_each_seed(tmp_path: Path) -> None:
    study = Study(tmp_path, 2, 30, 1.0, 2)

    for form in FORMS:
        kept = study.kept(form, 0.1)
        for seed, (rate, run) in enumerate(kept):
            others = [study._run(cell) for cell in study._known if (cell.form, cell.seed) == (form, seed)]
            assert len(others) == 3
            assert FORMS[form].error(run) == min(map(FORMS[form].error, others))
            assert rate in (0.2, 0.5, 0.8)


def test_the_command_prints_a_table_for_each_form_and_keeps_what_is_finished(tmp_path: Path, capsys: Any) -> None:
    def told() -> list[str]:
        main(tmp_path, "paper,program", "0.1:0.3:0.1", 2, 3, 20, 1.0, 0)
        return str(capsys.readouterr().out).splitlines()

    first = told()
    file = tmp_path / "runs-3-20-1.jsonl"
    trained = file.read_text()

    assert first[0] == "XOR, 2-2-1, 3 data shards of 20 examples, one epoch, delay 1, seeds 0 to 1"
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in first if line.startswith("| ")]
    assert [row[0] for row in rows] == 2 * ["training", "centralised", "tau 0.1", "tau 0.2", "tau 0.3"]
    for row in rows[1:5]:
        assert len(row) == 10
        assert 0 < float(row[1]) < 1
    assert rows[1][5:7] == ["189", "0"]
    assert [rows[1][8:], rows[2][8:], rows[3][8:]] == [["0.04", "18,009"], ["0.25", "28,866"], ["", ""]]
    assert sum(line.startswith("error = ") for line in first) == 2
    assert (tmp_path / "actors.png").read_bytes().startswith(b"\x89PNG")
    assert len(trained.splitlines()) == 2 * 3 * (1 + 2 * 3)
    assert told() == first
    assert file.read_text() == trained


def test_what_fits_is_told() -> None:
    taus = [0.5, 1.0, 1.5, 2.0]
    line = Line((0.1, 9.0), taus, [(0.2 + 0.1 * tau, 0.0) for tau in taus], [(100 * tau**-1.5, 0.0) for tau in taus])

    straight, falling = fits(line)

    assert straight == "error = 0.200 +0.1000 tau (R^2 1.000)"
    assert falling.endswith("or 100 tau^-1.50 (R^2 1.000)")
    assert fits(line._replace(updates=[(0.0, 0.0)] * 4)) == ["Too few values of tau for a fit."]


@pytest.mark.parametrize(
    ("option", "given", "told"),
    [
        ("forms", "paper,strom", "--forms: got 'strom'; expected some of paper, message, program"),
        ("taus", "much", "--taus: got 'much'; expected FIRST:LAST:STEP"),
        ("taus", "0.1:2", "--taus: got '0.1:2'; expected FIRST:LAST:STEP"),
        ("taus", "0.1:2:0", "--taus: got '0.1:2:0'; expected FIRST:LAST:STEP"),
        ("taus", "0:1:0.1", "--taus: got '0:1:0.1'; expected at least one, all above 0"),
        ("taus", "2:1:0.1", "--taus: got '2:1:0.1'; expected at least one"),
    ],
)
def test_an_option_that_can_not_be_read_is_refused_before_anything_is_written(
    tmp_path: Path, option: str, given: str, told: str
) -> None:
    options = {"forms": "paper", "taus": "0.1", option: given}
    with pytest.raises(UsageError, match=told):
        main(tmp_path, options["forms"], options["taus"], 1, 2, 10, 1.0, 0)
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(240)
def test_real_processes_stand_beside_the_virtual_ones(tmp_path: Path, capsys: Any) -> None:
    main(tmp_path, "paper", "0.05", 1, 25, 150, 1.0, 2)

    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| ")]
    central, decentral = ([cell.strip() for cell in row.strip("|").split("|")] for row in rows[1:])
    assert (central[0], decentral[0]) == ("centralised", "tau 0.05")
    assert central[3] == central[4] == "1,359"
    for row in (central, decentral):
        assert float(row[1]) == pytest.approx(float(row[2]), abs=0.02)
    assert float(decentral[3].replace(",", "")) == pytest.approx(float(decentral[4].replace(",", "")), rel=0.3)
