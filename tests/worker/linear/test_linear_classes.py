"""Fitted steps, an intercept and several classes with real servers and workers in this process."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.linear.model import Examples, score
from paceline.data.dataset import Labelled, Selection
from paceline.data.shard_writer import Dealt, write_shards
from paceline.data.shards import Shards, open_shards
from tests.support.nights import some
from tests.worker.linear.test_linear_worker import RECIPE, Trial, config

FITTED = {
    "steps": "fitted",
    "intercept": True,
    "objective": {"loss": "squared_hinge", "c": 1.0},
    "class_weights": "balanced",
    "batches": 3,
}


def three() -> Labelled:
    """Rows of three classes that a linear model tells apart, one of them rare; none without the intercept."""
    from scipy.sparse import csr_array

    rng = np.random.default_rng(0)
    labels = rng.choice(3, 300, p=[0.6, 0.3, 0.1])
    corners = np.array([[1, 1, 0, 3], [3, 1, 1, 1], [1, 3, 2, 1]])
    return Labelled(csr_array((corners[labels] + rng.normal(0, 0.3, (300, 4))).astype(np.float32)), labels)


def shards_of(source: Labelled, folder: Path) -> Shards:
    parts = [Selection(source, np.arange(number, len(source), 2)) for number in range(2)]
    write_shards(folder, "made", RECIPE, Dealt(parts), {}, classes=("one", "two", "seven"))
    return open_shards(folder)


@pytest.mark.parametrize(
    ("policy", "loss"),
    some(product(["bsp", "asp"], ["squared_hinge", "softmax"]), [("bsp", "squared_hinge")]),
)
def test_several_classes_are_trained_in_one_run_whatever_replies_bring(policy: str, loss: str, tmp_path: Path) -> None:
    source, found = three(), []
    for pull in ("changed", "wanted"):
        svm = {**FITTED, "objective": {"loss": loss, "c": 1.0}, "pull": pull, "validation": 0}
        trial = Trial(config(policy, epochs=20, svm=svm), tmp_path / pull)
        trial.shards = shards_of(source, tmp_path / f"{pull}-shards")
        try:
            found.append(trial.start().finish())
        finally:
            trial.close()

    examples: Any = Examples.of(source.features, source.labels, classes=3)
    for weights in found:
        assert len(weights) == 3 * 5
        assert score(examples, weights, trial.config.svm.objective, classes=3).f1 > 0.95
    if policy == "bsp":
        np.testing.assert_array_equal(*found)
