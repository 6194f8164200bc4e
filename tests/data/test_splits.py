"""Splits are seeded, disjoint, complete and stratified."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.model_selection import train_test_split

from paceline.core.errors import DataError
from paceline.data.dataset import Dataset, Labelled
from paceline.data.splits import cut_off, split


def examples(labels):
    labels = np.asarray(labels)
    return Labelled(np.arange(len(labels), dtype=np.float32).reshape(-1, 1), labels)


def rows(part):
    return part.rows.tolist()


@pytest.mark.parametrize(
    ("validation", "test", "expected"),
    [
        (0.1, 0.2, {"train": [42, 28], "validation": [6, 4], "test": [12, 8]}),
        (0.15, 0.15, {"train": [42, 28], "validation": [9, 6], "test": [9, 6]}),
        (0, 0.3, {"train": [42, 28], "test": [18, 12]}),
    ],
)
def test_the_usual_splits_hold_their_share_of_each_class(validation, test, expected):
    parts = split(Dataset(examples([0] * 60 + [1] * 40)), validation, test, seed=3)

    found = {"train": parts.train, **parts.kept}
    assert {name: np.bincount(part.labels).tolist() for name, part in found.items()} == expected


@given(st.lists(st.integers(8, 30), min_size=1, max_size=5), st.floats(0.2, 0.4), st.floats(0.2, 0.4), st.integers(0))
def test_every_example_is_in_one_part(sizes, validation, test, seed):
    dataset = Dataset(examples(np.repeat(np.arange(len(sizes)), sizes)))

    parts = split(dataset, validation, test, seed)
    everything = [parts.train, *parts.kept.values()]

    assert sorted(np.concatenate([part.rows for part in everything])) == list(range(sum(sizes)))
    assert all(len(np.unique(part.labels)) == len(sizes) for part in everything)


def test_the_seed_decides():
    dataset = Dataset(examples([0, 1] * 50))

    first, again, other = (rows(split(dataset, 0.2, 0.2, seed).kept["test"]) for seed in (1, 1, 2))

    assert first == again
    assert first != other


def test_a_test_set_that_the_data_brings_is_kept():
    dataset = Dataset(examples([0, 1] * 10), test=examples([0, 1, 1]))

    parts = split(dataset, validation=0.2, test=0.5, seed=0)

    assert parts.kept["test"].ids.tolist() == [20, 21, 22]
    assert len(parts.kept["validation"]) == 4
    assert len(parts.train) == 16


def test_data_with_sets_of_its_own_is_not_split():
    dataset = Dataset(examples([0]), test=examples([1, 1]), validation=examples([2]))

    parts = split(dataset, validation=0.2, test=0.5, seed=0)

    assert rows(parts.train) == [0]
    assert parts.kept["validation"].ids.tolist() == [3]


def test_a_share_of_zero_makes_no_part():
    parts = split(Dataset(examples([0, 1])), validation=0, test=0, seed=0)

    assert parts.kept == {}
    assert rows(parts.train) == [0, 1]


def test_labels_that_are_no_classes_are_cut_at_random():
    parts = split(Dataset(examples(np.linspace(0, 1, 10))), validation=0.2, test=0.3, seed=0)

    assert {name: len(part) for name, part in parts.kept.items()} == {"test": 3, "validation": 2}


@pytest.mark.parametrize(
    ("labels", "test", "fold", "told"),
    [
        ([0] * 10 + [7], 0.3, None, "Class 7 has only 1 example left when the test set"),
        ([0, 1, 2, 3] * 5, 0.1, None, r"data\.test asks for 2 of 20 examples, .* at least 4 \(one for each class\)"),
        ([0, 1, 2, 3] * 5, 0.9, None, r"data\.test asks for 18 of 20"),
        ([0.5], 0.5, None, r"data\.test asks for 1 of 1"),
        ([0] * 10 + [7, 7], 0, (0, 3), "Class 7 has only 2 examples, but each of 3 folds needs one"),
        ([0.5, 0.25], 0, (0, 3), "The training set has only 2 examples, but each of 3 folds"),
    ],
)
def test_too_few_examples_for_a_split_or_for_the_folds_are_refused(labels, test, fold, told):
    with pytest.raises(DataError, match=told):
        split(Dataset(examples(labels)), validation=0, test=test, seed=0, fold=fold)


@pytest.mark.parametrize("fold", [None, (0, 3)])
def test_whole_numbers_that_may_be_no_classes_are_told_so_with_what_to_do(fold):
    numbers = np.arange(25, 125)

    with pytest.raises(DataError, match=r"100 different whole numbers, .* to predict .*labels\.astype\('float32'\) in"):
        split(Dataset(examples(numbers)), validation=0, test=0.2, seed=0, fold=fold)

    parts = split(Dataset(examples(numbers.astype("float32"))), validation=0, test=0.2, seed=0, fold=fold)
    assert len(parts.train) + len(parts.kept["test"]) == 100


def test_each_example_is_tested_on_in_one_fold_with_equal_shares_of_each_class():
    dataset = Dataset(examples([0] * 60 + [1] * 41))
    parts = [split(dataset, validation=0.1, test=0.5, seed=1, fold=(part, 4)) for part in range(4)]

    assert sorted(np.concatenate([found.kept["test"].rows for found in parts])) == list(range(101))
    for found in parts:
        assert np.bincount(found.kept["test"].labels).tolist() in ([15, 10], [15, 11])
        everything = [found.train, *found.kept.values()]
        assert sorted(np.concatenate([part.rows for part in everything])) == list(range(101))
        assert len(found.kept["validation"]) == 10


def test_with_folds_a_test_set_that_the_data_brings_is_left_alone():
    dataset = Dataset(examples([0, 1] * 10), test=examples([0, 1, 1]), validation=examples([0]))

    parts = split(dataset, validation=0.2, test=0.5, seed=0, fold=(1, 2))

    assert len(parts.kept["test"]) == len(parts.train) == 10
    assert parts.kept["test"].ids.max() < 20
    assert parts.kept["validation"].ids.tolist() == [23]


def test_folds_of_labels_that_are_no_classes_are_cut_at_random():
    dataset = Dataset(examples(np.linspace(0, 1, 10)))

    first, again, other = (rows(split(dataset, 0, 0, seed, (0, 5)).kept["test"]) for seed in (0, 0, 1))

    assert len(first) == 2
    assert first == again
    assert first != other


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
