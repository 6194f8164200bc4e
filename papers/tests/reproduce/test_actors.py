"""[Actors]' experiment at a small size: the written-out gradient against torch's, runs in virtual time, the table, and real
processes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paceline.core.errors import ConfigError
from paceline.core.values import Vector
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica
from paceline_papers.reproduce.actors_virtual import (
    ASP,
    CORNERS,
    HIDDEN,
    LABELS,
    LENGTH,
    SHAPES,
    Experiment,
    Setting,
    Xor,
)
from paceline_papers.reproduce.recipes.ours import actors_in_processes
from paceline_papers.reproduce.recipes.ours.actors_in_processes import compared
from paceline_papers.reproduce.xor_runs import FORMS, RATES, best, broadcast, setting_of

TASK = str(actors_in_processes.TASK)


def small(workers: int = 4, examples: int = 60, seed: int = 0, own_first: bool = False, delay: float = 1.0) -> Setting:
    return setting_of(seed, workers, examples, delay, own_first)


def one_after_another(model: Vector, corners: Any, lr: float) -> float:
    """Plain SGD in place; the sum of the squared derivatives by the logit."""
    net = Xor()
    for corner in corners:
        model -= np.float32(lr) * net.gradient(model, CORNERS[corner : corner + 1], LABELS[corner : corner + 1])
    return net.published


# the network
@pytest.mark.parametrize("seed", range(5))
def test_the_written_out_network_is_the_tasks(seed: int) -> None:
    replica = Replica(load_task(TASK), seed=seed)
    replica.load(np.random.default_rng(seed).normal(size=LENGTH).astype(np.float32))

    assert replica.shapes == SHAPES
    inputs = CORNERS.astype(np.float32)
    for corner in range(4):
        net, rows = Xor(), slice(corner, corner + 1)
        found = net.gradient(replica.local, CORNERS[rows], LABELS[rows])
        step = replica.gradient(inputs[rows], LABELS[rows].astype(np.int64), 0, None)
        assert found == pytest.approx(step.gradient, abs=1e-6)
        assert found[-1] ** 2 == pytest.approx(net.published)
    with torch.no_grad():
        expected = replica.model(torch.from_numpy(inputs)).sigmoid().numpy()
    assert Xor().outputs(replica.local, CORNERS) == pytest.approx(expected, abs=1e-6)


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
    assert Experiment(small(workers=1, examples=2000), 0.5, ASP).run().updates == 18_009


def test_one_worker_and_servers_are_plain_sgd() -> None:
    setting = small(workers=1)
    expected = setting.first[0].copy()
    published = one_after_another(expected, setting.corners[0], 0.5)

    training = Experiment(setting, 0.5, ASP)
    found = training.run()

    assert training.models[0] == pytest.approx(expected, abs=1e-6)
    assert found.published == pytest.approx(published / 60, rel=1e-4)
    errors = (Xor().outputs(expected, CORNERS)[:, 0] - LABELS) ** 2
    assert found.error == pytest.approx(errors[setting.corners[0]].mean(), rel=1e-4)
    assert found.of_mean == pytest.approx(found.error)


def test_every_push_of_many_workers_is_folded_once_and_steps_overlap() -> None:
    training = Experiment(small(), 0.5, ASP)

    found = training.run()

    assert [server.clocks.pushes for server in training.training._slices] == [240, 240]
    assert [server.version for server in training.training._slices] == [240, 240]
    assert found.updates == 9 * 61
    assert max(entry.staleness for entry in training.training._slices[0].clocks.table.values()) > 0


# decentralised
def test_a_lone_worker_that_takes_its_gradients_is_plain_sgd() -> None:
    setting = small(workers=1)
    expected = setting.first[0].copy()
    one_after_another(expected, setting.corners[0], 0.5)

    training = Experiment(setting, 0.5, broadcast(0.5, "gradient"))

    assert training.run().updates == 0
    assert training.models[0] == pytest.approx(expected, abs=1e-6)


def test_all_have_one_model_where_senders_take_what_they_send() -> None:
    training = Experiment(small(), 0.5, broadcast(0.1, "message"))

    found = training.run()

    assert found.updates > 0
    assert np.ptp(training.models, axis=0) == pytest.approx(np.zeros(LENGTH), abs=1e-5)
    assert found.error == pytest.approx(found.of_mean, abs=1e-5)


def test_nothing_is_learned_from_what_nobody_sends_where_senders_take_what_they_send() -> None:
    setting = small()

    training = Experiment(setting, 0.5, broadcast(1e6, "message"))

    assert training.run().updates == 0
    assert all(np.array_equal(model, setting.first[0]) for model in training.models)


def test_what_a_worker_receives_falls_as_tau_rises() -> None:
    updates = [Experiment(small(), 0.5, broadcast(tau, "gradient")).run().updates for tau in (0.05, 0.2, 0.8)]

    assert updates == sorted(updates, reverse=True)
    assert 0 < updates[-1] < updates[0] <= LENGTH * 60 * 3


def test_the_authors_program_sends_output_layers_only() -> None:
    setting = small(own_first=True)
    silent = Experiment(setting, 0.5, broadcast(1e6, "gradient"), output_only=True)
    training = Experiment(setting, 0.5, broadcast(1e-9, "gradient"), output_only=True)

    silent.run()
    found = training.run()

    assert found.updates == (LENGTH - HIDDEN) * 60 * 3
    assert np.ptp(training.models, axis=0)[:HIDDEN].min() > 0.01
    alone = setting.first[1].copy()
    one_after_another(alone, setting.corners[1], 0.5)
    assert silent.models[1] == pytest.approx(alone, abs=1e-6)


def test_a_seed_decides_all_and_the_delay_some() -> None:
    def trained(**more: Any) -> Any:
        return Experiment(small(**more), 0.5, broadcast(0.1, "gradient")).run()

    assert trained() == trained()
    assert trained() != trained(seed=1)
    assert trained() != trained(delay=5.0)


# the best of three rates
@pytest.mark.parametrize("form", FORMS)
def test_the_best_of_the_rates_is_kept(form: str) -> None:
    found = best(form, 0.1, 0, workers=2, examples=30)
    setting = setting_of(0, 2, 30, own_first=FORMS[form].is_programs)
    runs = [
        Experiment(setting, rate, broadcast(0.1, FORMS[form].own), output_only=FORMS[form].is_programs).run()
        for rate in RATES
    ]

    assert found["error"] == min(map(FORMS[form].error, runs))
    assert found["updates"] in [run.updates for run in runs if FORMS[form].error(run) == found["error"]]


# real processes
@pytest.mark.nightly  # 10 s of CPU time; `paceline reproduce ours/actors-in-processes` needs them, and nobody else
def test_real_processes_end_where_the_virtual_ones_do(tmp_path: Path) -> None:
    central, decentral = (compared(tmp_path, each, 0, 2, 150) for each in (ASP, broadcast(0.05, "gradient")))

    assert central["updates"] == central["virtual-updates"] == 1359
    for found in (central, decentral):
        assert found["error"] == pytest.approx(found["virtual-error"], abs=0.02)
    assert decentral["updates"] == pytest.approx(decentral["virtual-updates"], rel=0.3)
