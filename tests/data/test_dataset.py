"""Examples in memory are checked once, and a digest tells two data sets apart."""

import numpy as np
import pytest
from scipy.sparse import csr_array

from paceline.core.errors import DataError
from paceline.data.dataset import Dataset, Labelled, Selection


def labelled(rows=4, first=0):
    return Labelled(np.arange(first, first + rows * 3, dtype=np.float32).reshape(rows, 3), np.arange(rows) % 2)


def test_examples_have_a_length_and_classes():
    examples = labelled(5)

    assert len(examples) == 5
    assert examples.classes.tolist() == [0, 1, 0, 1, 0]


def test_labels_that_are_no_whole_numbers_are_no_classes():
    assert Labelled(np.zeros((2, 1)), np.array([0.5, 1.5])).classes is None


@pytest.mark.parametrize(
    ("features", "labels", "told"),
    [
        (np.zeros((3, 2)), np.zeros(2, int), "3 rows of features but 2 labels"),
        (np.zeros((0, 2)), np.zeros(0, int), "no examples"),
        (np.array([[1.0], [np.nan]]), np.zeros(2, int), "features of example 1 hold NaN or infinity"),
        (np.zeros((2, 1)), np.array([0.0, np.inf]), "labels of example 1"),
        (np.array([["a"], ["b"]], dtype=object), np.zeros(2, int), "features are an array of object"),
        ([[1.0]], np.zeros(1, int), "features are list"),
        (np.float32(1), np.zeros(1, int), "features are float32"),
    ],
)
def test_arrays_that_are_no_training_data_are_refused(features, labels, told):
    with pytest.raises(DataError, match=told):
        Labelled(features, labels)


def test_sparse_rows_are_sorted():
    rows = csr_array((np.array([3.0, 1, 2]), np.array([2, 0, 1]), np.array([0, 2, 3])), (2, 3))

    found = Labelled(rows, np.array([0, 1])).features

    assert found.has_canonical_format
    assert found.toarray().tolist() == [[1, 0, 3], [0, 2, 0]]
    assert not rows.has_sorted_indices, "the user's own rows stay as they are"


def test_sparse_rows_with_an_index_twice_are_refused():
    rows = csr_array((np.ones(5), np.array([1, 1, 2, 0, 2]), np.array([0, 1, 2, 5])), (3, 3))

    with pytest.raises(DataError, match=r"features of example 2 .* column 2 twice: call sum_duplicates"):
        Labelled(rows, np.arange(3))


def test_test_examples_must_look_like_training_examples():
    with pytest.raises(DataError, match=r"the test set have shape \(2,\)"):
        Dataset(train=labelled(), test=Labelled(np.zeros((1, 2)), np.zeros(1, int)))


def test_the_digest_tells_data_sets_apart():
    plain = Dataset(train=labelled())
    named = Dataset(train=labelled(), classes=("a", "b"))

    assert plain.digest() == Dataset(train=labelled()).digest()
    assert plain.digest() != Dataset(train=labelled(first=1)).digest()
    assert len({plain.digest(), named.digest(), Dataset(labelled(), classes=("b", "a")).digest()}) == 3
    assert Dataset(labelled(), test=labelled()).digest() != Dataset(labelled(), validation=labelled()).digest()


@pytest.mark.parametrize(
    ("labels", "told"),
    [
        (np.array([1, 2]), "train set has labels from 1 to 2, but there are names for only 2 classes"),
        (np.array([0, -1]), "train set has labels from -1 to 0"),
        (np.array([0.0, 1.0]), "labels of the train set are not classes"),
    ],
)
def test_names_of_classes_that_do_not_fit_are_refused(labels, told):
    with pytest.raises(DataError, match=told):
        Dataset(Labelled(np.zeros((2, 1)), labels), classes=("a", "b"))


def test_the_digest_does_not_depend_on_the_memory_layout():
    features, labels = np.arange(6.0).reshape(2, 3), np.array([0, 1])

    turned = Labelled(np.asfortranarray(features), labels)

    assert Dataset(turned).digest() == Dataset(Labelled(features, labels)).digest()


def test_a_selection_picks_rows_and_knows_their_ids():
    selection = Selection(labelled(6), np.array([4, 2, 5]), first_id=100)

    picked = selection.pick(np.array([2, 0]))

    assert len(picked) == 2
    assert picked.ids.tolist() == [105, 104]
    assert picked.features[:, 0].tolist() == [15.0, 12.0]
    assert picked.labels.tolist() == [1, 0]
