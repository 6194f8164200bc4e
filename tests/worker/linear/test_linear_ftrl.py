"""FTRL-Proximal of a linear model with real servers and workers in this process."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, LinearModel, score
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.policies.policy import push_batches
from paceline.core.settings.config import Config, Options
from paceline.data.sampler import Sampler, steps_per_epoch
from paceline.data.shards import Shards
from paceline.launch.linear_without_servers import settings_of
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.worker.before_run.check_linear import check_linear
from paceline.worker.linear.linear_rows import LinearData
from tests.support.nights import some
from tests.worker.linear.test_linear_worker import FITTED, Trial, config, made, shards_of, shards_of_three, three

D = 60
LOGISTIC: dict[str, Any] = {"objective": {"loss": "logistic", "lam": 0.0}, "validation": 0}
LINE = ("svm.steps=plain", "schedule.name=constant", "svm.objective={loss: logistic, c: null, lam: 0}")


def stepped(policy: str, l1: float, **settings: Any) -> Config:
    found = config(policy, **{"svm": LOGISTIC, **settings})
    return found.model_copy(update={"optimizer": Options(name="ftrl", lr=0.3, l1=l1)})


def finished(config: Config, folder: Path, shards: Shards | None = None) -> tuple[np.ndarray, Trial]:
    trial = Trial(config, folder)
    if shards is not None:
        trial.shards = shards
    try:
        return trial.start().finish(), trial
    finally:
        trial.close()


def sequential(config: Config, shards: Shards, rounds: int) -> np.ndarray:
    """What lock-step must give: each round a step on the sum of both workers' gradients."""
    own, batch = LinearData(config, shards), config.worker_batch * push_batches(config)
    lens = own.epoch_lens()
    steps = steps_per_epoch(lens, [[place] for place in range(len(lens))], batch)
    data = [own.rows([place]) for place in range(config.workers)]
    samplers = [
        Sampler(own.sizes([place]), batch, steps, config.seed, f"worker-{place}", lens[place])
        for place in range(config.workers)
    ]
    weights, optimizer = np.zeros(D, np.float32), build_optimizer(config.optimizer)
    slots, decays = optimizer.new_slots(D), config.svm.objective.decays(shards.feature_counts)
    for clock in range(1, rounds + 1):
        total = np.zeros(D, np.float32)
        for (examples, _, train, _), sampler in zip(data, samplers, strict=True):
            model = LinearModel(weights, config.svm.objective, decays)
            found = model.gradient(examples, train[sampler.indices(clock)])
            total[found.places] += found.values
        there = np.flatnonzero(total)
        own_slots, near = [slot[there] for slot in slots], weights[there]
        optimizer.step(near, near, total[there], 1.0, optimizer.lr, own_slots, clock)
        weights[there] = near
        for slot, after in zip(slots, own_slots, strict=True):
            slot[there] = after
    return weights


@pytest.mark.parametrize("batches", [1, 3])
def test_lock_step_is_the_step_on_the_sum_of_all_gradients_bit_for_bit(batches: int, tmp_path: Path) -> None:
    run = stepped("bsp", 1.0, svm={**LOGISTIC, "batches": batches})

    weights, trial = finished(run, tmp_path)

    np.testing.assert_array_equal(weights, sequential(run, trial.shards, trial.status.version))
    assert 0 < (weights == 0).sum() < D


@pytest.mark.nightly  # three runs; by day the same in lock-step
def test_l1_makes_weights_exactly_0_without_waiting_too(tmp_path: Path) -> None:
    examples: Any = Examples.of(made().features, made().labels)

    without, _ = finished(stepped("asp", 0.0, epochs=10), tmp_path / "without")
    weak, _ = finished(stepped("asp", 3.0, epochs=10), tmp_path / "weak")
    strong, _ = finished(stepped("asp", 1e6, epochs=10), tmp_path / "strong")

    assert not (without == 0).any()
    assert 0 < (weak == 0).sum() < D
    assert score(examples, weak, stepped("asp", 0).svm.objective).accuracy > 0.85
    assert not strong.any()


def test_each_worker_may_stop_by_its_own_loss_without_a_rate_in_the_settings(tmp_path: Path) -> None:
    run = stepped(
        "asp", 0.1, epochs=200, svm={**LOGISTIC, "validation": 0.2, "stopping": {"rule": "cs449", "preset": "authors"}}
    )
    run = run.model_copy(update={"optimizer": Options(name="ftrl")})

    weights, trial = finished(run, tmp_path)

    assert weights.any()
    assert all(said.has("the validation loss has settled; leaving") for said in trial.said)


@pytest.mark.parametrize("loss", some(["squared_hinge", "softmax"], ["softmax"]))
def test_several_classes_are_trained_by_gradients_too(loss: str, tmp_path: Path) -> None:
    svm = {**FITTED, "steps": "plain", "objective": {"loss": loss, "c": 1.0}, "validation": 0, "pull": "wanted"}
    source = three()
    run = stepped("bsp", 0.01, epochs=20, svm=svm)

    weights, _ = finished(run, tmp_path, shards_of_three(source, tmp_path / "three"))

    examples: Any = Examples.of(source.features, source.labels, classes=3)
    assert score(examples, weights, run.svm.objective, classes=3).f1 > 0.95


def test_a_run_is_checked_before_it_starts_with_or_without_a_rate(tmp_path: Path) -> None:
    shards = shards_of(tmp_path, 2)

    for optimizer in (Options(name="ftrl", l1=1.0), Options(name="sgd", momentum=0.0, weight_decay=0.0)):
        check_linear(stepped("bsp", 1.0).model_copy(update={"optimizer": optimizer}), shards)


def test_the_tasks_own_settings_are_refused_with_what_to_set() -> None:
    with pytest.raises(ConfigError, match=r"(?s)Set svm\.steps=plain\..*Set schedule\.name=constant"):
        read_config("svm", Flags(sets=["optimizer.name=ftrl"]))
    found = read_config("svm", Flags(sets=["optimizer={name: ftrl, l1: 10}", *LINE]))
    assert build_optimizer(found.optimizer).sparse
    with pytest.raises(ConfigError, match="optimizer ftrl steps on servers, and `paceline local` has none"):
        settings_of(found, 1, False)
