"""Folders of shards as a table: the run's own split, and what is refused."""

import numpy as np
import pytest

from paceline.core.errors import DataError, UsageError
from paceline.data.shards import Shard
from paceline_papers.baseline.baseline import Baseline, Wanted, encoding_for
from paceline_papers.baseline.encoding import encoding, labels
from paceline_papers.baseline.read_shards import _rows, read_shards
from tests.support.small_shards import NAMES, WIDTH, made


@pytest.mark.parametrize("is_sparse", [False, True])
def test_shards_are_the_training_part_and_their_test_examples_the_other(tmp_path, is_sparse):
    features, numbers = made(tmp_path / "shards", is_sparse)
    split = Baseline("shards", 0, 0, tmp_path / "out", str(tmp_path / "shards")).split()

    assert (split.train_rows, split.test_rows, split.width) == (200, 50, WIDTH)
    for found, own, rows in zip(
        encoding("given").arrays(split), labels(split), (slice(0, 200), slice(200, 250)), strict=True
    ):
        assert found.toarray() == pytest.approx(features[rows])
        assert [split.classes[each] for each in own] == [NAMES[each] for each in numbers[rows]]


def test_models_are_trained_on_shards(tmp_path):
    made(tmp_path / "shards")
    baseline = Baseline("shards", 0, 0, tmp_path / "out", str(tmp_path / "shards"))
    wanted = Wanted(["bayes", "lr", "tree"], ["sklearn"], [1], ["memory"], encoding_for("shards", None))

    points = list(baseline.train(wanted))
    assert {point.encoding for point in points} == {"given"}
    found = baseline.kept.figures["sklearn, lr, 20 steps, given", 0]["confusion"]
    assert np.trace(found) > 45


def test_validation_examples_are_tested_on_where_there_are_no_others(tmp_path):
    made(tmp_path / "shards", parts=("validation",))

    assert read_shards(str(tmp_path / "shards"))["test"].features.shape == (50, WIDTH)


def test_shards_without_test_examples_are_refused(tmp_path):
    made(tmp_path / "shards", parts=())

    with pytest.raises(DataError, match=r"holds no test examples\. Make shards with data\.test above 0"):
        read_shards(str(tmp_path / "shards"))


def test_amounts_as_labels_are_refused(tmp_path):
    made(tmp_path / "shards", amounts=True)

    with pytest.raises(DataError, match=r"shard-0: the labels are no classes \(\d\.5\); expected one whole number"):
        read_shards(str(tmp_path / "shards"))


def test_whole_amounts_as_labels_are_refused_too(tmp_path):
    part = Shard(np.eye(3, dtype=np.float32), np.array([1, 2, 3], np.float32), np.arange(3))
    with pytest.raises(DataError, match=r"shard-0: the labels are no classes \(1\.0\); expected one whole number"):
        _rows(part, None, "shard-0")


def test_naive_bayes_is_refused_where_features_are_below_0(tmp_path):
    made(tmp_path / "shards", least=-2.0)
    baseline = Baseline("shards", 0, 0, tmp_path / "out", str(tmp_path / "shards"))

    with pytest.raises(
        UsageError, match=r"--model bayes: it takes no features below 0, and the shards have -2\..*l1,lr,ovr,tree"
    ):
        list(baseline.train(Wanted(["bayes"], ["sklearn"], [1], ["memory"], "given")))


def test_what_is_no_folder_of_shards_is_told_and_nothing_is_written(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "table.csv").write_text("a,b\n")
    made(tmp_path / "damaged")
    (tmp_path / "damaged" / "shard-1" / "labels.npy").write_bytes(b"")
    for name, told in (
        ("nowhere", "does not exist. Expected a folder of shards, as `paceline shard` writes it"),
        ("table.csv", "is a file, not a folder. Expected a folder of shards"),
        ("empty", "it is half-written or not a folder of shards"),
        ("damaged", "shard-1/labels.npy"),
    ):
        with pytest.raises(DataError, match=told):
            Baseline("shards", 0, 0, tmp_path / "out", str(tmp_path / name)).split()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "encode"), [("shards", "hash"), ("h1b-like", "given")])
def test_an_encoding_that_does_not_fit_is_refused(name, encode):
    with pytest.raises(UsageError, match=f"--encode {encode}: {name} takes "):
        encoding_for(name, encode)


def test_shards_need_their_folder_and_have_no_other_label(tmp_path):
    for given in ({}, {"data": "shards", "label": "kind"}):
        with pytest.raises(UsageError, match=r"shards needs --data, their folder, and takes no --label"):
            Baseline("shards", 0, 0, tmp_path, **given)
