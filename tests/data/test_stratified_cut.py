"""The rows that are cut off are those that scikit-learn cuts off."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from paceline.data.stratified_cut import cut_off


@pytest.mark.parametrize("classes", [0, 1, 2, 3, 10, 40])
def test_the_same_rows_as_scikit_learns_are_cut_off(classes: int):
    for seed in range(60):
        rng = np.random.default_rng([seed, classes])
        strata = np.concatenate(
            [np.full(rng.integers(2, 40), number - 3) for number in range(classes)] or [np.zeros(50)]
        )
        rng.shuffle(strata)
        rows, least = len(strata), max(1, classes)
        count = int(rng.integers(least, rows - least + 1))

        own = cut_off(strata if classes else None, rows, count, seed)

        _, theirs = train_test_split(
            np.arange(rows), test_size=count, stratify=strata if classes else None, random_state=seed
        )
        assert own.tolist() == np.sort(theirs).tolist()
