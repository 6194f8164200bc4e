"""Without settings a linear model is as good as scikit-learn's LinearSVC on unbalanced sets, no matter what trains it."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from paceline.core.linear.model import Examples, Fit, LinearModel, score
from paceline.core.optimizers.effective import settings_lines
from paceline.core.optimizers.schedule import Schedule
from paceline.core.policies.policy import build_policy, push_batches
from paceline.core.settings.config import Config
from paceline.core.slice.sparse_folding import RunningMean
from paceline.core.values import Vector
from paceline.data.dataset import Dataset
from paceline.launch.linear_without_servers import settings_of, train_here
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.worker.linear.hogwild import train
from paceline_papers.experiments.linear import GENERATED, linear_svc, written
from tests.support.nights import some

CLOSE = 0.01
"""Of F1."""


@cache
def made(name: str) -> tuple[Dataset, float]:
    """The data, and LinearSVC's F1."""
    data = GENERATED[name]()
    return data, linear_svc(data)


def config(workers: int, policy: str) -> Config:
    """What a run without settings has."""
    return read_config("svm", Flags(workers=workers, policy=policy))


def examples(data: Dataset) -> tuple[Examples, Examples]:
    return Examples.of(data.train.features, data.train.labels), Examples.of(data.test.features, data.test.labels)


def trained(rows: Examples, config: Config) -> Vector:
    """The mean that a run would score: its workers' pushes, in lock-step or each on weights as old as the others' pushes make
    them."""
    assert config.mean_from is not None
    weights = np.zeros(rows.width + 1, np.float32)
    mean, schedule = RunningMean(len(weights), config.mean_from), Schedule(config.schedule, config.epochs)
    count, batch = config.workers, config.worker_batch * push_batches(config)
    shards = np.array_split(np.random.default_rng(0).permutation(len(rows)), count)
    fit = Fit.of(rows, True)
    decays = config.svm.objective.decays(lambda: rows.counts(True))
    models = [LinearModel(weights.copy(), config.svm.objective, decays, tracks=True, fit=fit) for _ in shards]
    for model in models:
        model.join(fit.shares(count, batch) if count > 1 else None)
    per_epoch = max(map(len, shards))
    for epoch in range(config.epochs):
        orders = [np.random.default_rng([epoch, place]).permutation(own) for place, own in enumerate(shards)]
        for start in range(0, per_epoch, batch):
            at = epoch + start / per_epoch
            rate = float(config.optimizer.options["lr"]) * schedule.shape(at)
            before = weights.copy()
            for model, order in zip(models, orders, strict=True):
                model.step(rows, order[start : start + batch], config.worker_batch, rate)
                moved = model.moves()
                weights[moved.places] += moved.values
                if config.policy.name == "asp":
                    model.rebase(np.arange(len(weights)), weights)
            if config.policy.name == "bsp":
                for model in models:
                    model.rebase(np.arange(len(weights)), weights)
            if mean.goes_on(at):
                changed = np.flatnonzero(weights != before)
                mean.note(changed, weights[changed] - before[changed])
    return mean.of(weights)


@pytest.mark.parametrize("name", GENERATED)
@pytest.mark.parametrize(
    ("workers", "policy"),
    some([(1, "asp"), (2, "bsp"), (4, "bsp"), (2, "asp"), (4, "asp"), (8, "asp")], [(2, "bsp"), (4, "asp")]),
)
def test_workers_reach_linear_svc(name: str, workers: int, policy: str) -> None:
    data, expected = made(name)
    rows, tests = examples(data)
    settings = config(workers, policy)

    found = score(tests, trained(rows, settings), settings.svm.objective.over(len(rows)))

    assert found.f1 == pytest.approx(expected, abs=CLOSE)
    assert found.majority > 0.89


def test_many_workers_take_more_epochs_unless_the_user_says_how_many() -> None:
    found = {workers: config(workers, "asp").epochs for workers in (1, 4, 5, 8, 16, 64)}
    assert found == {1: 30, 4: 30, 5: 38, 8: 60, 16: 120, 64: 120}
    assert read_config("svm", Flags(workers=8, epochs=30)).epochs == 30
    assert read_config("svm", Flags(workers=8, sets=["svm.steps=plain"])).epochs == 30
    assert read_config("digits", Flags(workers=8)).epochs == read_config("digits").epochs

    for epochs in (7, 60):
        asked = read_config("svm", Flags(workers=8, epochs=epochs))
        assert settings_lines(asked, build_policy(asked.policy))[-1] == (
            "8 workers with fitted steps need about 2 times the epochs of up to 4 (docs/choose/linear-models.md); "
            f"this run has {epochs}."
        )
    few = read_config("svm", Flags(workers=4))
    assert not any("epochs" in line for line in settings_lines(few, build_policy(few.policy)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", GENERATED)
def test_threads_reach_linear_svc(name: str, threads: int) -> None:
    data, expected = made(name)
    rows, tests = examples(data)
    settings = settings_of(config(1, "asp"), threads, False)

    found = score(tests, train(rows, settings).weights, settings.objective.over(len(rows)))

    assert found.f1 == pytest.approx(expected, abs=CLOSE)


def test_class_weights_are_those_of_linear_svc(tmp_path: Path) -> None:
    from sklearn.metrics import f1_score, recall_score
    from sklearn.svm import LinearSVC

    data, _ = made("scales")
    unweighted = recall_score(
        data.test.labels, LinearSVC().fit(data.train.features, data.train.labels).predict(data.test.features)
    )
    path = written(data, tmp_path, "scales")
    for given, same in (("balanced", "balanced"), ("{'1': 4}", {1: 4})):
        svc = LinearSVC(class_weight=same).fit(data.train.features, data.train.labels)
        said = svc.predict(data.test.features)

        told = train_here(
            read_config("svm", Flags(data=str(path), sets=[f"svm.class_weights={given}"])), 1, False, tmp_path / "out"
        )

        assert told.metrics["test_f1"] == pytest.approx(f1_score(data.test.labels, said), abs=CLOSE)
        assert told.metrics["test_recall"] > 0.1 + unweighted, "or the weights would not show"
