"""Threads that train one array of weights on one machine."""

from itertools import count, pairwise
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression

from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, score
from paceline.core.linear.objective import Objective
from paceline.core.linear.stopping import Stopping
from paceline.core.settings.config import ScheduleConfig
from paceline.worker.linear.hogwild import LocalSettings, train
from paceline_papers.rcv1_like import rcv1_like


@pytest.fixture(scope="module")
def data() -> tuple[Examples, Examples]:
    """Training and test rows."""
    made = rcv1_like(4000, 2000, 3000)
    assert made.test is not None
    train, test = (Examples.of(part.features, part.labels) for part in (made.train, made.test))
    return train, test


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("batch_size", [1, 16])
def test_any_number_of_threads_learns(data: tuple[Examples, Examples], threads: int, batch_size: int) -> None:
    settings = LocalSettings(lr=0.5 / batch_size, batch_size=batch_size, threads=threads, epochs=5)
    assert score(data[1], train(data[0], settings).weights, Objective()).accuracy > 0.85


@pytest.mark.parametrize("average", [False, True])
def test_one_thread_gives_the_same_bits_every_time(data: tuple[Examples, Examples], average: bool) -> None:
    settings = LocalSettings(epochs=2, mean_from=1 if average else None)
    first, second = (train(data[0], settings).weights.tobytes() for _ in range(2))
    assert first == second
    assert train(data[0], settings.model_copy(update={"seed": 1})).weights.tobytes() != first


def test_threads_that_share_no_feature_give_the_bits_of_one_thread() -> None:
    examples = Examples.of(csr_array(np.eye(64, dtype=np.float32)), np.arange(64) % 2)
    weights = [train(examples, LocalSettings(threads=threads)).weights.tolist() for threads in (1, 3, 100)]
    assert weights[0] == weights[1] == weights[2]


def test_the_history_tells_the_score_and_the_time_of_every_epoch(data: tuple[Examples, Examples]) -> None:
    ticks = count()
    found = train(*data[:1], LocalSettings(epochs=3), data[1], clock=lambda: float(next(ticks)))
    assert [epoch.seconds for epoch in found.history] == [1, 1, 1]
    assert found.history[-1].score == score(data[1], found.weights, Objective())
    assert train(data[0], LocalSettings(epochs=1)).history[0].score is None


def test_a_rate_that_decays_moves_less_in_later_epochs(data: tuple[Examples, Examples]) -> None:
    def moved(epochs: int, lr_decay: float) -> Any:
        falling = ScheduleConfig(name="step", every=1, gamma=lr_decay)
        return train(data[0], LocalSettings(epochs=epochs, schedule=falling)).weights

    assert np.abs(moved(2, 1e-6) - moved(1, 1e-6)).max() < 1e-4 < np.abs(moved(2, 1) - moved(1, 1)).max()


def test_the_mean_of_the_weights_swings_less_than_the_weights() -> None:
    examples = Examples.of(csr_array(np.ones((400, 1), np.float32)), np.arange(400) % 2)
    settings = LocalSettings(lr=1.0, schedule=ScheduleConfig(), epochs=1)
    last, mean = (
        np.std(
            [
                train(examples, settings.model_copy(update={"mean_from": mean_from, "seed": seed})).weights
                for seed in range(20)
            ]
        )
        for mean_from in (None, 0)
    )
    assert mean < last / 2


def test_a_run_stops_early_by_its_validation_loss(data: tuple[Examples, Examples]) -> None:
    settings = LocalSettings(epochs=50, stopping=Stopping(rule="window", window=1))
    losses = [epoch.score.total for epoch in train(data[0], settings, data[1]).history if epoch.score]
    assert len(losses) < 50
    assert losses[-1] > min(losses[:-1])
    assert all(later <= earlier for earlier, later in pairwise(losses[:-1]))


@pytest.mark.parametrize("rule", ["delta", "cs449"])
def test_fitted_steps_stop_early_once_they_are_short(data: tuple[Examples, Examples], rule: Any) -> None:
    """A rule that looked at all losses stopped a run on a9a after 2 of 30 epochs, at an F1 of .37 in place of .65."""
    falling = ScheduleConfig(name="polynomial", power=2.0)
    settings = LocalSettings(
        objective=Objective(loss="squared_hinge", c=1.0),
        steps="fitted",
        intercept=True,
        schedule=falling,
        epochs=20,
        mean_from=15,
        stopping=Stopping(rule=rule, preset="authors"),
    )
    history = train(data[0], settings, data[1]).history
    assert 15 < len(history) < 20


def test_stopping_early_without_a_validation_set_is_refused(data: tuple[Examples, Examples]) -> None:
    with pytest.raises(ConfigError, match="stopping needs a validation set"):
        train(data[0], LocalSettings(stopping=Stopping()))


def test_a_rate_that_is_far_too_high_is_told() -> None:
    examples = Examples.of(csr_array(np.full((50, 2), 3.0, np.float32)), np.arange(50) % 2)
    with pytest.raises(ConfigError, match=r"not finite after epoch 1: training has diverged\. Lower lr"):
        train(examples, LocalSettings(lr=1e6, epochs=3, objective=Objective(lam=1e2)))


@pytest.mark.parametrize("threads", [1, 3])
def test_threads_train_softmax_as_well_as_scikit_learn_does(threads: int) -> None:
    iris = load_iris()
    examples = Examples.of(csr_array(iris.data.astype(np.float32)), iris.target, classes=3)
    objective = Objective(loss="softmax", c=1)
    falling = ScheduleConfig(name="polynomial", power=2)
    settings = LocalSettings(
        objective=objective, steps="fitted", intercept=True, classes=3, threads=threads, epochs=60, schedule=falling
    )

    found = score(examples, train(examples, settings).weights, objective, classes=3)

    oracle = LogisticRegression(C=1, max_iter=1000).fit(iris.data, iris.target)
    assert found.accuracy > oracle.score(iris.data, iris.target) - 0.03
