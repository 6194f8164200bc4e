"""The generator of rows that are like RCV1's, and its two text forms."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DiskError
from paceline.data.dataset import Dataset
from paceline.data.rcv1 import read_rcv1
from paceline.data.svmlight import read_svmlight
from paceline_papers.rcv1_like import BLOCK, rcv1_like, write_lyrl2004, write_svmlight


@pytest.fixture(scope="module")
def made() -> Dataset:
    return rcv1_like(9000, 300)


def same(left: Any, right: Any) -> bool:
    return left.shape == right.shape and all(
        np.array_equal(getattr(left, name), getattr(right, name)) for name in ("indptr", "indices", "data")
    )


def test_rows_have_unit_length_positive_values_and_the_number_of_features_asked_for(made: Dataset) -> None:
    features = made.train.features
    assert features.shape == (9000, 47_236)
    assert features.data.dtype == np.float32
    assert features.data.min() > 0
    assert np.sqrt((features * features).sum(axis=1)) == pytest.approx(np.ones(9000), abs=1e-5)
    assert set(np.unique(made.train.labels)) == {0, 1}
    assert made.train.labels.mean() == pytest.approx(0.47, abs=0.03)


def test_rows_are_as_long_and_features_as_unequal_as_rcv1s(made: Dataset) -> None:
    features = made.train.features
    assert features.nnz / 9000 == pytest.approx(76, abs=3)
    shares = np.sort(np.bincount(features.indices, minlength=47_236) / 9000)[::-1]
    assert 0.3 < shares[0] < 0.5
    assert 0.1 < shares[99] < 0.2
    assert 0.005 < shares[999] < 0.02
    frequent = np.argsort(np.bincount(features.indices, minlength=47_236))[-100:]
    assert 0.3 < frequent.mean() / 47_236 < 0.7, "frequent features are all over the numbers"


def test_a_good_linear_model_finds_the_classes() -> None:
    from sklearn.svm import LinearSVC

    rows = rcv1_like(9000, 3000)
    assert rows.test is not None
    model = LinearSVC(C=0.1).fit(rows.train.features, rows.train.labels)
    assert 0.9 < model.score(rows.test.features, rows.test.labels) < 0.98


def test_a_seed_gives_the_same_rows_and_another_seed_others(made: Dataset) -> None:
    again = rcv1_like(9000, 300)
    assert made.digest() == again.digest()
    assert made.digest() != rcv1_like(9000, 300, seed=1).digest()


def test_the_first_rows_are_the_same_whatever_their_number(made: Dataset) -> None:
    few = rcv1_like(BLOCK + 5, 20)
    assert same(few.train.features, made.train.features[: BLOCK + 5])
    assert few.train.labels.tolist() == made.train.labels[: BLOCK + 5].tolist()
    assert made.test is not None
    assert few.test is not None
    assert same(few.test.features, made.test.features[:20])


def test_the_test_rows_are_others_than_the_training_rows() -> None:
    made = rcv1_like(50, 50, 1000)
    assert made.test is not None
    assert not same(made.train.features, made.test.features)
    assert rcv1_like(50, 0, 1000).test is None


@pytest.mark.parametrize("features", [1, 2, 100, 1 << 20, (1 << 31) - 1])
def test_there_may_be_any_number_of_features(features: int) -> None:
    made = rcv1_like(40, 0, features).train.features
    assert made.shape == (40, features)
    assert made.indices.min() >= 0
    assert made.indices.max() < features


def test_without_noise_only_labels_differ() -> None:
    clean, noisy = (rcv1_like(2000, 0, 1000, noise=noise).train for noise in (0.0, 0.1))
    assert same(clean.features, noisy.features)
    assert np.mean(clean.labels != noisy.labels) == pytest.approx(0.1, abs=0.03)


@pytest.mark.parametrize(
    "wrong",
    [{"train": 0}, {"test": -1}, {"features": 0}, {"features": 1 << 31}, {"noise": 0.5}, {"noise": float("nan")}],
)
def test_sizes_that_can_not_be_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected at least 1 training row"):
        rcv1_like(**{"train": 10, "test": 10, **wrong})


def test_rows_come_back_from_libsvm_text_with_their_bits(tmp_path: Path) -> None:
    made = rcv1_like(30, 0, 500).train
    write_svmlight(made, tmp_path / "rows")
    read = read_svmlight(tmp_path / "rows", features=500, dense=False).train
    assert same(read.features, made.features)
    assert read.labels.tolist() == made.labels.tolist()


def test_rows_come_back_from_the_form_of_rcv1s_authors(tmp_path: Path) -> None:
    made = rcv1_like(30, 10, 500)
    write_lyrl2004(made, tmp_path, "MCAT")
    read = read_rcv1(tmp_path, "MCAT", 500)
    for (_, left), (_, right) in zip(read.sets(), made.sets(), strict=True):
        assert same(left.features, right.features)
        assert left.labels.tolist() == right.labels.tolist()


def test_a_folder_that_can_not_be_written_to_is_told(tmp_path: Path) -> None:
    with pytest.raises(DiskError, match=r"Can't write .*nowhere"):
        write_lyrl2004(rcv1_like(5, 0, 100), tmp_path / "nowhere")
