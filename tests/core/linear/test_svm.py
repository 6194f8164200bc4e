"""The linear model over sparse rows: its oracles, its gradients against the dense formulas, its moves, and its errors."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from scipy.sparse import csr_array, csr_matrix, random_array
from sklearn.svm import LinearSVC

from paceline.core.errors import ConfigError, DataError
from paceline.core.linear.model import Examples, Fit, LinearModel, margins, score
from paceline.core.linear.objective import Objective
from paceline.core.linear.one_vs_rest import linear_model
from paceline.core.values import Vector

f32 = np.float32
SEEDS = st.integers(0, 2**32 - 1)
OBJECTIVES = st.builds(
    Objective,
    loss=st.sampled_from(["hinge", "logistic"]),
    lam=st.sampled_from([0.0, 1e-5, 0.1]),
    reg=st.sampled_from(["support", "hogwild"]),
    reduce=st.sampled_from(["sum", "mean"]),
)


def examples_of(rows: list[dict[int, float]], labels: list[int], width: int = 8) -> Examples:
    dense = np.zeros((len(rows), width), f32)
    for row, values in zip(dense, rows, strict=True):
        row[list(values)] = list(values.values())
    return Examples.of(csr_array(dense), np.array(labels))


def made(seed: int, count: int = 12, width: int = 20, density: float = 0.2) -> tuple[Examples, np.ndarray[Any, Any]]:
    """Random examples, some of them without any feature, and the same rows as a dense float64 array."""
    rng = np.random.default_rng(seed)
    rows = random_array(
        (count, width), density=density, rng=rng, dtype=f32, data_sampler=lambda size: rng.normal(size=size)
    )
    features = csr_array(rows)
    return Examples.of(features, rng.integers(0, 2, count)), features.toarray().astype(np.float64)


def weights_of(seed: int, width: int = 20) -> Vector:
    return np.random.default_rng([seed, 1]).normal(size=width).astype(f32)


def model_of(weights: Vector, objective: Objective, examples: Examples, tracks: bool = False) -> LinearModel:
    return LinearModel(weights, objective, objective.decays(examples.counts), tracks)


def formula(weights: Any, objective: Objective, examples: Examples, dense: Any, rows: Any) -> Any:
    """The gradient of a batch by its formula, over all features and in float64."""
    decays = objective.lam / (np.maximum((dense != 0).sum(0), 1) if objective.reg == "hogwild" else 1)
    total = np.zeros(dense.shape[1])
    for x, y in zip(dense[rows], examples.labels[rows].astype(np.float64), strict=True):
        z = x @ weights
        slope = (-y if y * z < 1 else 0) if objective.loss == "hinge" else -y / (1 + np.exp(y * z))
        total += (x != 0) * (slope * x + decays * weights)
    return total / (len(rows) if objective.reduce == "mean" else 1)


def spread(sparse: Any) -> Vector:
    dense = np.zeros(len(sparse), f32)
    dense[sparse.places] = sparse.values
    return dense


def test_a_sample_within_the_margin_gives_the_gradient_of_the_oracle() -> None:
    examples = examples_of([{1: 0.6, 7: 0.8}, {1: 3.0}], [1, 1])
    model = model_of(np.array([0, 0.5, 0, -0.2, 0, 0, 0, 0], f32), Objective(lam=0.1), examples)
    first, second = (model.gradient(examples, np.array([row])) for row in (0, 1))
    assert first.places.tolist() == [1, 7]
    assert first.values == pytest.approx([-0.55, -0.8])
    assert second.places.tolist() == [1]
    assert second.values == pytest.approx([0.05])


def test_a_step_leads_to_the_weights_of_the_oracle() -> None:
    examples = examples_of([{1: 0.6, 7: 0.8}], [1])
    model = model_of(np.array([0, 0.5, 0, -0.2, 0, 0, 0, 0], f32), Objective(lam=0.1), examples)
    model.step(examples, examples.every(), 1, 0.1)
    assert model.weights == pytest.approx([0, 0.555, 0, -0.2, 0, 0, 0, 0.08])


def test_a_margin_of_exactly_one_is_wide_enough() -> None:
    examples = examples_of([{0: 1.0}], [1])
    model = model_of(np.ones(8, f32), Objective(lam=0), examples)
    assert len(model.gradient(examples, examples.every()).places) == 0


@given(seed=SEEDS, objective=OBJECTIVES)
def test_the_sparse_gradient_is_that_of_the_dense_formula(seed: int, objective: Objective) -> None:
    examples, dense = made(seed)
    rows = np.random.default_rng(seed).permutation(len(examples))[:7]
    model = model_of(weights_of(seed), objective, examples)
    found = model.gradient(examples, rows)
    assert (np.diff(found.places) > 0).all()
    assert found.values.all()
    expected = formula(model.weights.astype(np.float64), objective, examples, dense, rows)
    assert spread(found) == pytest.approx(expected, abs=1e-5)
    assert spread(model.gradient(examples, rows)) == pytest.approx(expected, abs=1e-5), "nothing is left of the first"


@given(seed=SEEDS, objective=OBJECTIVES, batch_size=st.sampled_from([1, 3, 5, 100]))
def test_steps_follow_the_dense_formula_batch_by_batch(seed: int, objective: Objective, batch_size: int) -> None:
    examples, dense = made(seed)
    rows = np.random.default_rng(seed).permutation(len(examples))
    model = model_of(weights_of(seed), objective, examples)
    weights = model.weights.astype(np.float64)
    model.step(examples, rows, batch_size, 0.1)
    for start in range(0, len(rows), batch_size):
        weights -= 0.1 * formula(weights, objective, examples, dense, rows[start : start + batch_size])
    assert model.weights == pytest.approx(weights, abs=1e-4)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_the_gradient_is_the_slope_of_the_loss(loss: Any) -> None:
    objective = Objective(loss=loss, lam=0.1)
    examples, dense = made(3)
    weights = weights_of(3).astype(np.float64)

    def total(weights: Any) -> float:
        pull = 0.05 * ((dense != 0) * weights**2).sum()
        return float(objective.losses(examples.labels, dense @ weights).sum() + pull)

    steps = 1e-6 * np.eye(len(weights))
    slopes = [(total(weights + step) - total(weights - step)) / 2e-6 for step in steps]
    model = model_of(weights.astype(f32), objective, examples)
    assert spread(model.gradient(examples, examples.every())) == pytest.approx(slopes, abs=1e-4)


@given(seed=SEEDS, objective=OBJECTIVES, batch_size=st.sampled_from([1, 4]))
def test_moves_are_what_the_steps_added_and_are_told_once(seed: int, objective: Objective, batch_size: int) -> None:
    examples, _ = made(seed)
    before = weights_of(seed)
    model = model_of(before.copy(), objective, examples, tracks=True)
    model.step(examples, examples.every()[:5], batch_size, 0.1)
    model.step(examples, examples.every()[3:9], batch_size, 0.1)
    moves = model.moves()
    assert (np.diff(moves.places) > 0).all()
    assert moves.values.all()
    assert spread(moves).tolist() == (model.weights - before).tolist()
    assert len(model.moves().places) == 0


def test_weights_from_outside_come_in_under_the_moves_that_were_not_handed_out() -> None:
    examples = examples_of([{0: 1.0, 1: 1.0}, {1: 1.0, 2: 1.0}], [1, 1], width=4)
    model = model_of(np.zeros(4, f32), Objective(lam=0), examples, tracks=True)
    model.step(examples, np.array([0]), 1, 0.5)
    assert spread(model.moves()).tolist() == [0.5, 0.5, 0, 0]
    model.step(examples, np.array([1]), 1, 0.25)

    model.rebase(np.array([0, 1, 3]), np.array([8, 4, 2], f32))

    assert model.weights.tolist() == [8, 4.25, 0.25, 2]
    assert spread(model.moves()).tolist() == [0, 0.25, 0.25, 0]


def test_rows_without_features_move_nothing() -> None:
    examples = examples_of([{}, {2: 1.0}, {}], [1, 0, 0])
    model = model_of(np.zeros(8, f32), Objective(), examples, tracks=True)
    model.step(examples, np.array([0, 2]), 2, 0.5)
    assert len(model.moves().places) == 0
    assert len(model.gradient(examples, np.array([0, 2])).places) == 0
    model.step(examples, np.array([], np.int64), 16, 0.5)
    assert not model.weights.any()


def test_the_same_rows_in_the_same_order_give_the_same_bits() -> None:
    examples, _ = made(5, count=60)
    rows = np.random.default_rng(5).permutation(60)

    def trained(cuts: list[int]) -> list[float]:
        model = model_of(weights_of(5), Objective(), examples)
        for part in np.split(rows, cuts):
            model.step(examples, part, 4, 0.3)
        return model.weights.tolist()

    assert trained([]) == trained([4, 40, 44])


def test_a_score_counts_hits_and_takes_the_mean_loss() -> None:
    examples = examples_of([{0: 2.0}, {0: 0.5}, {0: -1.0}, {0: 1.0}, {}], [1, 1, 1, 0, 0])
    found = score(examples, np.array([1, 2, 0, 0, 0, 0, 0, 0], f32), Objective(lam=0.1))
    assert found.loss == pytest.approx((0 + 0.5 + 2 + 2 + 1) / 5)
    assert found.penalty == pytest.approx(0.05 * 5)
    assert found.total == pytest.approx(found.loss + found.penalty)
    assert found.accuracy == pytest.approx(3 / 5)
    assert found.precision == pytest.approx(2 / 3)
    assert found.recall == pytest.approx(2 / 3)


def test_a_score_of_some_rows_is_of_these_only() -> None:
    examples, dense = made(8)
    rows = np.array([7, 2, 3])
    weights = weights_of(8)
    assert margins(examples, weights, rows) == pytest.approx(dense[rows] @ weights, abs=1e-5)
    assert margins(examples, weights) == pytest.approx(dense @ weights, abs=1e-5)
    signs = np.sign(dense[rows] @ weights) == examples.labels[rows]
    assert score(examples, weights, Objective(), rows).accuracy == pytest.approx(signs.mean())


def test_nothing_called_positive_scores_a_precision_of_zero() -> None:
    examples = examples_of([{0: 1.0}], [0])
    found = score(examples, np.zeros(8, f32), Objective())
    assert (found.accuracy, found.precision, found.recall) == (1, 0, 0)


def test_the_logistic_loss_of_a_huge_margin_is_a_number() -> None:
    examples = examples_of([{0: 1e4}, {0: -1e4}], [1, 1])
    model = model_of(np.ones(8, f32), Objective(loss="logistic", lam=0), examples)
    assert score(examples, model.weights, Objective(loss="logistic")).loss == pytest.approx(5000)
    assert spread(model.gradient(examples, examples.every()))[0] == pytest.approx(1e4)


def test_hogwilds_pull_is_shared_out_among_the_samples_with_a_feature() -> None:
    examples = examples_of([{0: 1.0}, {0: 1.0, 1: 1.0}, {0: 1.0}], [1, 1, 1], width=3)
    decays = Objective(lam=0.3, reg="hogwild").decays(examples.counts)
    assert decays == pytest.approx([0.1, 0.3, 0.3])
    assert Objective(lam=0.3).decays(examples.counts) == pytest.approx([0.3])


def test_a_chosen_class_is_told_from_the_rest() -> None:
    features = csr_array(np.eye(3, dtype=f32))
    assert Examples.of(features, np.array([4, 2, 7]), positive=2).labels.tolist() == [-1, 1, -1]
    with pytest.raises(DataError, match=r"classes 2 to 7; expected 0 and 1\. Set svm\.positive"):
        Examples.of(features, np.array([4, 2, 7]))


def test_rows_in_other_types_are_converted() -> None:
    rows = csr_array(np.array([[0, 1.5], [2, 0]]))
    wide = csr_array((rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64)), rows.shape)
    examples = Examples.of(wide, np.array([True, False]))
    assert (examples.indices.dtype, examples.values.dtype) == (np.uint32, f32)
    assert margins(examples, np.array([1, 10], f32)).tolist() == [15, 2]


def test_rows_that_are_no_sparse_rows_are_refused() -> None:
    with pytest.raises(DataError, match="features are ndarray; expected sparse rows"):
        Examples.of(np.eye(3), np.array([0, 1, 1]))
    with pytest.raises(DataError, match="features are csc_array; expected sparse rows"):
        Examples.of(csr_array(np.eye(3)).tocsc(), np.array([0, 1, 1]))


@pytest.mark.parametrize(
    ("arrays", "words"),
    [
        (([1.0], [3], [0, 1]), "indices 3 to 3, but there are only 3 features"),
        (([1.0], [-1], [0, 1]), "indices -1 to -1"),
        (([1.0], [0], [0, 2]), "don't fit together"),
        (([1.0, 1.0], [0, 1], [0, 2, 1, 2]), "don't fit together"),
    ],
)
def test_broken_sparse_rows_are_refused(arrays: Any, words: str) -> None:
    rows = csr_matrix((len(arrays[2]) - 1, 3), dtype=f32)
    rows.data, rows.indices, rows.indptr = np.array(arrays[0], f32), *map(np.array, arrays[1:])
    with pytest.raises(DataError, match=words):
        Examples.of(rows, np.zeros(rows.shape[0], np.int64))


def test_labels_that_are_no_classes_or_too_few_are_refused() -> None:
    features = csr_array(np.eye(3, dtype=f32))
    with pytest.raises(DataError, match="labels are float64"):
        Examples.of(features, np.array([0.5, 1, 0]))
    with pytest.raises(DataError, match="3 rows but 2 labels"):
        Examples.of(features, np.array([0, 1]))


def test_rows_that_are_not_there_are_refused() -> None:
    examples, _ = made(1)
    model = model_of(weights_of(1), Objective(), examples)
    for rows in (np.array([0, 12]), np.array([-1])):
        with pytest.raises(DataError, match="but there are 12, counted from 0"):
            model.step(examples, rows, 1, 0.1)
        with pytest.raises(DataError, match="but there are 12, counted from 0"):
            model.gradient(examples, rows)
    with pytest.raises(DataError, match="no rows to score"):
        score(examples, model.weights, Objective(), np.array([], np.int64))


def test_weights_of_another_width_are_refused() -> None:
    examples, _ = made(1)
    narrow = LinearModel(np.zeros(19, f32), Objective(), np.zeros(1, f32))
    with pytest.raises(DataError, match="20 features, but the model has 19"):
        narrow.step(examples, examples.every(), 1, 0.1)
    with pytest.raises(DataError, match="20 features, but the model has 19"):
        margins(examples, narrow.weights)
    with pytest.raises(ConfigError, match="18 decays for 19 weights"):
        LinearModel(np.zeros(19, f32), Objective(), np.zeros(18, f32))
    with pytest.raises(ConfigError, match="batch_size is 0"):
        model_of(weights_of(1), Objective(), examples).step(examples, examples.every(), 0, 0.1)


@pytest.mark.parametrize("wrong", [{"lam": -1}, {"lam": float("nan")}, {"loss": "square"}, {"reg": "l1"}, {"lamb": 1}])
def test_an_objective_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Objective(**wrong)


def test_fitted_steps_come_to_what_linear_svc_makes_small() -> None:
    rows = np.random.default_rng(0).normal(size=(600, 6)) * [1, 30, 0.01, 5, 1, 1000]
    labels = (rows @ [1, 0.05, 80, -0.1, 0, 0.001] > 1).astype(np.int64)
    oracle = LinearSVC(dual=False).fit(rows, labels)

    examples, objective = Examples.of(csr_array(rows.astype(f32)), labels), Objective(loss="squared_hinge", c=1)
    weights = np.zeros(7, f32)
    decays = objective.decays(lambda: examples.counts(True))
    model = LinearModel(weights, objective, decays, fit=Fit.of(examples, True))
    order = np.random.default_rng(1)
    for epoch in range(60):
        model.step(examples, order.permutation(600), 1, 2 * (1 - epoch / 60) ** 3)

    expected = np.append(oracle.coef_[0], oracle.intercept_)
    least, found = (score(examples, each.astype(f32), objective.over(600)) for each in (expected, weights))
    assert found.total < 1.01 * least.total
    assert found.f1 == pytest.approx(least.f1, abs=0.01)


@pytest.mark.parametrize("loss", ["hinge", "logistic", "squared_hinge"])
def test_no_fitted_step_leads_beyond_its_rows_own_optimum(loss: Any) -> None:
    examples = Examples.of(csr_array(np.array([[1000.0, 0.001]], f32)), np.array([1]))
    objective = Objective(loss=loss, lam=0)
    weights = np.zeros(2, f32)
    model = LinearModel(weights, objective, np.zeros(1, f32), fit=Fit.of(examples, False))

    for _ in range(3):
        model.step(examples, examples.every(), 1, 1e9)

    margin = margins(examples, weights)[0]
    assert margin == pytest.approx(1, abs=1e-5) if loss != "logistic" else 1 < margin < 4


def test_what_members_tell_together_is_as_much_as_one_would_where_all_have_the_feature() -> None:
    examples = Examples.of(csr_array(np.ones((8, 1), f32)), np.ones(8, np.int64))
    fit, objective = Fit.of(examples, False), Objective(loss="squared_hinge", lam=0)
    model = LinearModel(np.zeros(1, f32), objective, np.zeros(1, f32), tracks=True, fit=fit)
    model.join(fit.shares(4, 8))

    model.step(examples, examples.every(), 1, 100.0)

    assert fit.shares(4, 8).tolist() == [4]
    assert model.weights.tolist() == [1]
    assert model.moves().values.tolist() == [0.25]


def test_a_feature_that_one_of_the_members_alone_has_is_not_shared() -> None:
    features = np.zeros((1000, 2), f32)
    features[:, 0], features[0, 1] = 1, 1
    fit = Fit.of(Examples.of(csr_array(features), np.arange(1000) % 2), False)

    assert fit.shares(4, 10) == pytest.approx([4, 1.03], abs=0.01)


def test_an_intercept_is_a_feature_that_all_rows_have() -> None:
    dense = np.array([[1, 0, 2], [0, 3, 0], [1, 1, 1]], f32)
    labels, rows, both = np.array([1, 0, 1]), np.arange(3), Objective(lam=0.1)
    plain = Examples.of(csr_array(dense), labels)
    wider = Examples.of(csr_array(np.column_stack([dense, np.ones(3, f32)])), labels)

    for batch in (1, 2):
        models = [LinearModel(np.full(4, 0.01, f32), both, np.array([0.1], f32), tracks=True) for _ in range(2)]
        for model, examples in zip(models, (plain, wider), strict=True):
            model.step(examples, rows, batch, 0.5)
            np.testing.assert_allclose(margins(examples, model.weights), margins(wider, model.weights))
        np.testing.assert_allclose(models[0].weights, models[1].weights, rtol=1e-5)
        np.testing.assert_allclose(models[0].moves().values, models[1].moves().values, rtol=1e-5)
        first, second = (model.gradient(rows_, rows) for model, rows_ in zip(models, (plain, wider), strict=True))
        np.testing.assert_allclose(first.values, second.values, rtol=1e-4)


def test_an_error_costs_as_much_as_its_row_says() -> None:
    features, labels = csr_array(np.array([[1, 0], [0, 1]], f32)), np.array([1, 0])
    model = LinearModel(np.zeros(2, f32), Objective(lam=0), np.zeros(1, f32))

    model.step(Examples.of(features, labels, costs=np.array([1, 5], f32)), np.arange(2), 1, 0.1)

    assert model.weights == pytest.approx([0.1, -0.5])


def test_several_classes_are_each_told_from_all_others() -> None:
    features, labels = csr_array(np.eye(3, dtype=f32)), np.arange(3)
    examples = Examples.of(features, labels, classes=3)
    model = linear_model(np.zeros(9, f32), 3, Objective(lam=0), np.zeros(1, f32), tracks=True)

    model.step(examples, examples.every(), 1, 1.0)

    moved = model.moves()
    assert moved.places.tolist() == list(range(9))
    assert model.weights.reshape(3, 3).tolist() == (2 * np.eye(3) - 1).tolist()
    model.rebase(np.array([0, 4]), np.array([7, 8], f32))
    assert model.weights[[0, 4]].tolist() == [7, 8]
    found = score(examples, model.weights, Objective(lam=0), classes=3)
    assert (found.accuracy, found.f1, found.loss) == (1, 1, 0)
    assert found.majority == pytest.approx(1 / 3)
