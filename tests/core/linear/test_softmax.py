"""Softmax over sparse rows: its slope against finite differences, its optimum against scikit-learn's, its moves."""

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from paceline.core.errors import ConfigError, DataError
from paceline.core.linear.model import Examples, Fit, LinearModel, score
from paceline.core.linear.objective import Objective
from paceline.core.linear.one_vs_rest import linear_model
from paceline.core.linear.softmax import Softmax

f32 = np.float32
SOFTMAX = Objective(loss="softmax", lam=0)


def made(costs: Any = None) -> tuple[Examples, Any]:
    """Rows of three classes, and the same rows with a 1 behind them for the intercept, dense."""
    rng = np.random.default_rng(0)
    dense = (rng.random((12, 5)) < 0.6) * rng.normal(size=(12, 5))
    examples = Examples.of(csr_array(dense.astype(f32)), rng.integers(0, 3, 12), classes=3, costs=costs)
    return examples, np.column_stack([dense.astype(f32).astype(float), np.ones(12)])


def first_weights() -> Any:
    return np.random.default_rng(1).normal(size=18).astype(f32)


def slope(weights: Any, examples: Examples, dense: Any, objective: Objective, rows: Any) -> Any:
    """Of the sum of the rows' losses, each at its cost, and the pull, by central differences (18,)."""
    costs = np.broadcast_to(examples.costs, len(examples))[rows].astype(float)

    def total(flat: Any) -> float:
        each = flat.reshape(3, 6)
        own = objective.losses_of_classes(examples.labels[rows], (dense[rows] @ each.T).T)
        pull = objective.lam / 2 * ((dense[rows] != 0)[:, None, :] * each**2).sum()
        return float((costs * own).sum() + pull)

    return np.array([(total(weights + step) - total(weights - step)) / 2e-5 for step in 1e-5 * np.eye(18)])


@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize("batch_size", [1, 5, 12])
def test_a_step_of_each_batch_goes_against_the_slope_of_the_loss(reduce: Any, batch_size: int) -> None:
    costs = np.random.default_rng(2).uniform(0.5, 2, 12).astype(f32)
    (examples, dense), objective = made(costs), Objective(loss="softmax", lam=0.1, reduce=reduce)
    model = linear_model(first_weights(), 3, objective, np.array([0.1], f32))
    order = np.random.default_rng(3).permutation(12)

    model.step(examples, order, batch_size, 0.1)

    weights = first_weights().astype(float)
    for start in range(0, 12, batch_size):
        batch = order[start : start + batch_size]
        found = slope(weights, examples, dense, objective, batch)
        weights -= 0.1 * found / (len(batch) if reduce == "mean" else 1)
    assert isinstance(model, Softmax)
    assert model.weights == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize("reduce", ["sum", "mean"])
def test_the_gradient_of_a_batch_is_the_slope_of_the_loss(reduce: Any) -> None:
    costs = np.random.default_rng(2).uniform(0.5, 2, 12).astype(f32)
    (examples, dense), objective = made(costs), Objective(loss="softmax", lam=0.1, reduce=reduce)
    model, rows = Softmax(first_weights(), 3, objective, np.array([0.1], f32)), np.array([7, 2, 11])

    for _ in range(2):  # nothing is left of the first
        found = model.gradient(examples, rows)
        spread = np.zeros(18)
        spread[found.places] = found.values

        expected = slope(first_weights().astype(float), examples, dense, objective, rows)
        assert spread == pytest.approx(expected / (3 if reduce == "mean" else 1), abs=1e-5)
        assert (np.diff(found.places) > 0).all()


def test_the_loss_is_the_log_loss_of_the_chances() -> None:
    examples, dense = made()
    powers = np.exp(dense @ first_weights().astype(float).reshape(3, 6).T)

    found = score(examples, first_weights(), SOFTMAX, classes=3)

    assert found.loss == pytest.approx(log_loss(examples.labels, powers / powers.sum(1, keepdims=True)), abs=1e-6)
    assert found.accuracy == (powers.argmax(1) == examples.labels).mean()


def test_the_loss_of_huge_margins_is_a_number() -> None:
    examples = Examples.of(csr_array(np.array([[1e4]], f32)), np.array([1]), classes=3)
    weights = np.array([1, -1, 0], f32)

    assert score(examples, weights, SOFTMAX, classes=3).loss == pytest.approx(2e4)
    model = Softmax(weights, 3, SOFTMAX, np.zeros(1, f32))
    model.step(examples, examples.every(), 1, 1e-4)
    assert model.weights == pytest.approx([0, 0, 0])


def test_fitted_steps_come_to_the_optimum_of_scikit_learn() -> None:
    digits = load_digits()
    rows, labels = digits.data[:1200], digits.target[:1200]
    oracle = LogisticRegression(C=0.001, max_iter=10_000).fit(rows, labels)
    examples = Examples.of(csr_array(rows.astype(f32)), labels, classes=10)
    objective = Objective(loss="softmax", c=0.001)
    decays, fit = objective.decays(lambda: examples.counts(True)), Fit.of(examples, True)
    decays[-1] = 0  # as scikit-learn's intercept

    weights = np.zeros(10 * 65, f32)
    model = Softmax(weights, 10, objective, decays, fit=fit)
    order = np.random.default_rng(1)
    for epoch in range(60):
        model.step(examples, order.permutation(1200), 1, 2 * (1 - epoch / 60) ** 3)

    best = np.column_stack([oracle.coef_, oracle.intercept_]).reshape(-1).astype(f32)

    def made_small(flat: Any) -> float:
        found = score(examples, flat, objective, classes=10)
        return found.loss + (flat.reshape(10, 65)[:, :64].astype(float) ** 2).sum() / (2 * 0.001 * 1200)

    assert made_small(best) <= made_small(weights) * 1.0001
    assert made_small(weights) < 1.02 * made_small(best)
    test = Examples.of(csr_array(digits.data[1200:].astype(f32)), digits.target[1200:], classes=10)
    assert score(test, weights, objective, classes=10).accuracy == pytest.approx(
        oracle.score(digits.data[1200:], digits.target[1200:]), abs=0.01
    )


def test_a_fitted_step_lowers_its_rows_loss_at_any_rate() -> None:
    examples = Examples.of(csr_array(np.array([[1000.0, 0.001]], f32)), np.array([1]), classes=3)
    weights = np.array([3, 0, 0, 0, -2, 0], f32) / 1000
    model = Softmax(weights, 3, SOFTMAX, np.zeros(1, f32), fit=Fit.of(examples, False))
    losses = []
    for _ in range(4):
        losses.append(score(examples, weights, SOFTMAX, classes=3).loss)
        model.step(examples, examples.every(), 1, 1e9)

    assert losses == sorted(losses, reverse=True)


def test_moves_are_what_the_steps_have_added_to_any_class_and_are_told_once() -> None:
    examples, _ = made()
    weights = first_weights()
    model = Softmax(weights, 3, SOFTMAX, np.zeros(1, f32), tracks=True)
    before = weights.copy()

    model.step(examples, np.arange(4), 2, 0.1)
    model.step(examples, np.arange(2, 7), 2, 0.1)
    moves = model.moves()

    told = np.zeros(18, f32)
    told[moves.places] = moves.values
    assert (np.diff(moves.places) > 0).all()
    assert told.tolist() == (weights - before).tolist()
    assert len(model.moves().places) == 0


def test_weights_from_outside_come_in_under_the_moves_that_were_not_handed_out() -> None:
    examples = Examples.of(csr_array(np.array([[1, 0]], f32)), np.array([0]), classes=3)
    model = Softmax(np.zeros(6, f32), 3, SOFTMAX, np.zeros(1, f32), tracks=True)
    model.step(examples, examples.every(), 1, 3.0)
    assert model.weights == pytest.approx([2, 0, -1, 0, -1, 0])

    model.rebase(np.array([0, 3, 4]), np.array([8, 5, 1], f32))

    assert model.weights == pytest.approx([10, 0, -1, 5, 0, 0])
    assert model.moves().values == pytest.approx([2, -1, -1])


def test_members_share_a_feature_that_all_of_them_push() -> None:
    examples = Examples.of(csr_array(np.ones((9, 1), f32)), np.arange(9) % 3, classes=3)
    fit = Fit.of(examples, False)
    shared, alone = (Softmax(np.zeros(3, f32), 3, SOFTMAX, np.zeros(1, f32), True, fit) for _ in range(2))
    shared.join(fit.shares(4, 9))
    alone.join(None)

    for model in (shared, alone):
        model.step(examples, np.array([0]), 1, 1e-3)

    assert shared.weights == pytest.approx(4 * alone.weights)
    assert shared.moves().values == pytest.approx(alone.moves().values)


def test_of_two_classes_softmax_is_the_logistic_loss() -> None:
    features, labels = csr_array(np.array([[1, 0.5], [0, -2]], f32)), np.array([1, 0])
    examples = Examples.of(features, labels)
    models = [
        linear_model(np.zeros(2, f32), 2, Objective(loss=loss, lam=0), np.zeros(1, f32))
        for loss in ("softmax", "logistic")
    ]
    for model in models:
        model.step(examples, examples.every(), 1, 0.5)
    assert isinstance(models[0], LinearModel)
    assert models[0].weights.tolist() == models[1].weights.tolist()
    found = [score(examples, models[0].weights, Objective(loss=loss)).loss for loss in ("softmax", "logistic")]
    assert found[0] == found[1]


def test_what_does_not_fit_the_weights_is_refused() -> None:
    examples, _ = made()
    with pytest.raises(ConfigError, match="4 decays for 6 weights of a class"):
        Softmax(first_weights(), 3, SOFTMAX, np.zeros(4, f32))
    model = Softmax(np.zeros(21, f32), 3, SOFTMAX, np.zeros(1, f32))
    with pytest.raises(DataError, match="5 features, but the model has 7"):
        model.step(examples, examples.every(), 1, 0.1)
    model = Softmax(first_weights(), 3, SOFTMAX, np.zeros(1, f32))
    with pytest.raises(ConfigError, match="batch_size is 0"):
        model.step(examples, examples.every(), 0, 0.1)
    with pytest.raises(DataError, match="rows 0 to 12, but there are 12"):
        model.step(examples, np.arange(13), 1, 0.1)
