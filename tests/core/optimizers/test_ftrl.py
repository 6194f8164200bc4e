"""FTRL-Proximal against its paper's Algorithm 1, and what L1 leaves against scikit-learn."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.linear_model import LogisticRegression

from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, LinearModel
from paceline.core.linear.objective import Objective
from paceline.core.optimizers.builtin.ftrl import Ftrl
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Options
from paceline.core.values import Sparse, Vector

f32 = np.float32
LOGISTIC = Objective(loss="logistic", lam=0)


def made(rows: int = 2000, width: int = 100) -> tuple[Any, Any]:
    """Sparse rows and their classes, which follow a fifth of the features."""
    rng = np.random.default_rng(0)
    dense = (rng.random((rows, width)) < 0.1) * rng.normal(size=(rows, width))
    dense[np.arange(rows), rng.integers(width, size=rows)] += 0.5
    plane = 3 * rng.normal(size=width) * (rng.random(width) < 0.2)
    return dense.astype(f32), (dense @ plane + rng.logistic(size=rows) > 0).astype(np.int64)


def trained(ftrl: Ftrl, dense: Any, labels: Any, epochs: int, batch: int, objective: Objective = LOGISTIC) -> Vector:
    """The weights after passes in random order; with one pass of one row each, in the order of the rows."""
    examples, weights = Examples.of(csr_array(dense), labels), np.zeros(dense.shape[1], f32)
    model, slots = LinearModel(weights, objective, np.array([objective.lam], f32)), ftrl.new_slots(len(weights))
    rng = np.random.default_rng(1)
    batches = [
        rows
        for _ in range(epochs)
        for rows in np.array_split(
            np.arange(len(dense)) if epochs == 1 else rng.permutation(len(dense)), len(dense) // batch
        )
    ]
    for steps, rows in enumerate(batches, start=1):
        ftrl.step_at(weights, model.gradient(examples, rows), 1.0, slots, steps)
    return weights


def algorithm_1(
    dense: Any, labels: Any, alpha: float, beta: float, l1: float, l2: float
) -> tuple[dict[int, float], dict[int, float]]:
    """The paper's, line by line, in float64; returns z and n."""
    z: dict[int, float] = dict.fromkeys(range(dense.shape[1]), 0.0)
    n: dict[int, float] = dict.fromkeys(range(dense.shape[1]), 0.0)
    for x, y in zip(dense.astype(float), labels, strict=True):
        present, w = np.flatnonzero(x).tolist(), {}
        for i in present:
            if abs(z[i]) <= l1:
                w[i] = 0.0
            else:
                w[i] = -1 / ((beta + math.sqrt(n[i])) / alpha + l2) * (z[i] - math.copysign(l1, z[i]))
        p = 1 / (1 + math.exp(-sum(x[i] * w[i] for i in present)))
        for i in present:
            g = (p - y) * x[i]
            sigma = (math.sqrt(n[i] + g * g) - math.sqrt(n[i])) / alpha
            z[i] += g - sigma * w[i]
            n[i] += g * g
    return z, n


@pytest.mark.parametrize(
    ("alpha", "beta", "l1", "l2"), [(0.1, 1.0, 0.0, 0.0), (0.5, 1.0, 2.0, 0.0), (0.3, 0.2, 1.0, 4.0)]
)
def test_a_pass_over_single_rows_gives_the_weights_of_the_papers_algorithm(
    alpha: float, beta: float, l1: float, l2: float
) -> None:
    dense, labels = made(400, 40)
    z, n = algorithm_1(dense, labels, alpha, beta, l1, l2)
    expected = [
        0.0 if abs(z[i]) <= l1 else -(z[i] - math.copysign(l1, z[i])) / ((beta + math.sqrt(n[i])) / alpha + l2)
        for i in range(40)
    ]

    found = trained(Ftrl(lr=alpha, beta=beta, l1=l1, l2=l2), dense, labels, epochs=1, batch=1)

    assert found == pytest.approx(expected, abs=1e-5)
    assert np.array_equal(found == 0, np.array(expected) == 0)
    assert (found == 0).any() == (l1 > 0)


@pytest.mark.parametrize("batch", [1, 16])
def test_l1_comes_to_the_objective_and_the_zeros_of_scikit_learn(batch: int) -> None:
    dense, labels = made()
    oracle = LogisticRegression(l1_ratio=1, C=1 / 20, solver="liblinear", fit_intercept=False).fit(dense, labels)

    found = trained(Ftrl(lr=0.1, l1=5 * 20), dense, labels, epochs=5, batch=batch)

    def objective(weights: Any) -> float:
        margins = (2 * labels - 1) * (dense.astype(float) @ weights)
        return float(np.logaddexp(0, -margins).sum() + 20 * np.abs(weights).sum())

    least = oracle.coef_[0]
    assert (least == 0).sum() > 70
    assert objective(found) < 1.02 * objective(least)
    assert ((found == 0) == (least == 0)).mean() > 0.95


def test_l1_above_every_gradient_leaves_all_weights_at_exactly_0() -> None:
    dense, labels = made(400, 40)

    assert not trained(Ftrl(lr=0.5, l1=1e6), dense, labels, epochs=2, batch=8).any()


def test_a_step_changes_the_places_of_its_gradient_alone() -> None:
    ftrl, weights = Ftrl(lr=0.5), np.ones(6, f32)
    slots = ftrl.new_slots(6)
    ftrl.step_at(weights, Sparse(np.array([1, 4]), np.array([1, -3], f32), 6), 1.0, slots, 1)

    assert np.flatnonzero(weights != 1).tolist() == np.flatnonzero(slots[1]).tolist() == [1, 4]


@pytest.mark.parametrize(
    ("key", "value"), [("beta", 0), ("beta", -1), ("l1", -1), ("l2", -0.1), ("l1", float("nan")), ("l2", float("inf"))]
)
def test_an_option_that_makes_no_sense_is_refused(key: str, value: float) -> None:
    with pytest.raises(ConfigError, match=rf"^optimizer\.{key}: got {value!r}; "):
        build_optimizer(Options.model_validate({"name": "ftrl", key: value}))
