"""Rows with their own weights: from a file or a task to the shards, into the training and the scores, as scikit-learn's
sample_weight."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.metrics import accuracy_score, f1_score, precision_score, recall_score
from sklearn.svm import LinearSVC
from typer.testing import CliRunner

import paceline
from paceline.cli.__main__ import app
from paceline.core.errors import ConfigError, DataError
from paceline.core.linear.model import Examples
from paceline.core.linear.objective import Objective
from paceline.core.linear.score import Hits, score
from paceline.data.costs import class_counts, costs_of, counted
from paceline.data.dataset import Dataset, Labelled
from paceline.data.shards import Shards, open_shards
from paceline.data.svmlight import read_svmlight
from paceline.launch.linear_without_servers import train_here
from paceline.launch.settings.read_config import read_config
from paceline.settings.flags import Flags
from paceline.sharder.reshard import reshard, settings_of
from paceline.sharder.sharding import make_shards
from paceline.worker.scoring import scorer
from paceline.worker.scoring.scorer import majorities, open_splits, split_weights
from paceline_papers.experiments.linear import scales, written

TEXT = "+1 1:1\n-1 2:1\n\n-1 1:1 2:1\n"
CLOSE = 0.01
"""Of F1."""


def labelled(folder: Path, weights: str | None, text: str = TEXT) -> Path:
    (folder / "a").write_text(text)
    if weights is not None:
        (folder / "a.weight").write_text(weights)
    return folder / "a"


def small(weights: Any) -> Labelled:
    return Labelled(csr_array(np.eye(3, dtype=np.float32)), np.array([0, 1, 1]), weights)


# where they come from
def test_a_file_beside_the_examples_holds_their_weights(tmp_path: Path) -> None:
    data = read_svmlight(labelled(tmp_path, "0.5\n2\n\n0\n"), labelled(tmp_path, "0.5\n2\n\n0\n"), dense=False)

    assert data.test is not None
    for part in (data.train, data.test):
        assert part.weights.dtype == np.float32
        assert part.weights.tolist() == [0.5, 2, 0]
    assert data.as_read == ("a.weight: its 3 rows have weights from 0 to 2",) * 2
    assert read_svmlight(labelled(tmp_path, "1\n1\n1"), dense=False).train.weights is not None


def test_without_such_a_file_all_examples_count_alike(tmp_path: Path) -> None:
    assert read_svmlight(labelled(tmp_path, None), dense=False).train.weights is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1\n2\n", r"a\.weight: There are 2 weights for 3 examples; every example needs one"),
        ("1\n-2\n1\n", r"a\.weight: line 2 \('-2'\): the weight is negative, NaN, infinite or too large for float32"),
        ("1\n2\nnan\n", r"a\.weight: line 3 \('nan'\): the weight is negative, NaN"),
        ("1\n1e60\n2\n", r"a\.weight: line 2 \('1e60'\): the weight is negative, NaN, infinite or too large"),
        ("1\ntwo\n2\n", r"a\.weight: line 2 \('two'\): could not convert .* Expected one number a line, 0 or more"),
        ("0\n0\n0\n", r"a\.weight: All weights are 0, so no example counts\. Give the examples"),
        ("", r"a\.weight: There are 0 weights for 3 examples"),
    ],
    ids=["too few", "negative", "NaN", "too large", "no number", "all zero", "empty"],
)
def test_weights_that_are_none_are_refused_before_anything_starts(tmp_path: Path, text: str, said: str) -> None:
    path = labelled(tmp_path, text)

    with pytest.raises(DataError, match=said):
        make_shards(read_config("svm", Flags(data=str(path), workers=1)), tmp_path / "shards")
    with pytest.raises(DataError, match=said):
        train_here(read_config("svm", Flags(data=str(path))), 1, False, tmp_path / "out")
    assert not (tmp_path / "shards").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        (np.ones(2), "There are 2 weights for 3 examples"),
        (np.array([1, -1, 1]), "The weight of example 1 is -1; expected 0 or more, and finite"),
        (np.array([1, 1, np.nan]), "The weight of example 2 is nan"),
        (np.zeros(3), "All weights are 0"),
        ([1, 1, 1], "The weights are list; expected a numpy array"),
        (np.ones((3, 1)), r"The weights are float64 \(3, 1\)"),
        (np.array(["1", "1", "1"]), "The weights are <U1"),
    ],
)
def test_weights_of_a_task_of_ones_own_are_checked(weights: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        small(weights)


def test_a_model_of_torch_with_weights_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "weighted.py"
    file.write_text(
        "import numpy as np\nfrom paceline.extend import Dataset, Labelled\n"
        "def data(path):\n    return Dataset(Labelled(np.ones((9, 2)), np.arange(9) % 2, np.ones(9)))\n"
        "def model(): ...\n"
    )
    with pytest.raises(ConfigError, match=r"The train examples have weights .* only linear models \(updates: sparse\)"):
        make_shards(read_config(str(file)), tmp_path / "shards")


def test_other_weights_are_other_data() -> None:
    digests = {Dataset(small(weights)).digest() for weights in (None, np.ones(3), np.array([1, 1, 2]))}
    assert len(digests) == 3


# in the shards
def sharded(folder: Path, sets: tuple[str, ...] = (), workers: int = 3) -> tuple[Shards, np.ndarray[Any, Any]]:
    """30 rows, three of a rare kind; the weight of row i is i."""
    rows = "".join(f"{(-1, 1)[i % 2]} 1:{1 + i} {3 + (i > 26)}:1\n" for i in range(30))
    path = labelled(folder, "\n".join(map(str, range(30))), rows)
    config = read_config("svm", Flags(data=str(path), workers=workers, sets=["data.test=0.2", *sets]))
    make_shards(config, folder / "shards")
    return open_shards(folder / "shards"), np.arange(30, dtype=np.float32)


@pytest.mark.parametrize("sets", [(), ("data.strategy=distribution_aware", "data.strategy.clusters=2")])
def test_every_shard_and_part_holds_the_weights_of_its_rows(tmp_path: Path, sets: tuple[str, ...]) -> None:
    shards, weights = sharded(tmp_path, sets)

    for part in (*map(shards.shard, range(3)), shards.part("test")):
        assert part.weights is not None
        np.testing.assert_array_equal(part.weights, weights[part.ids])
    ids = np.unique(np.concatenate([shards.ids(number) for number in range(3)]))
    by_class = {str(label): float(weights[ids[ids % 2 == label]].sum()) for label in (0, 1)}
    assert shards.manifest.train_weights == by_class
    assert shards.manifest.train_weight == weights[ids].sum()
    for number in range(3):
        shards.verify(number)


def test_shards_without_weights_count_rows(tmp_path: Path) -> None:
    make_shards(read_config("svm", Flags(data=str(labelled(tmp_path, None, TEXT * 9)), workers=1)), tmp_path / "shards")
    shards = open_shards(tmp_path / "shards")
    assert (shards.shard(0).weights, shards.weights(np.arange(3))) == (None, None)
    assert shards.manifest.train_weight == shards.manifest.train_examples
    assert "train_weights" not in (tmp_path / "shards/manifest.json").read_text()


def test_shards_dealt_anew_keep_the_weights(tmp_path: Path) -> None:
    shards, weights = sharded(tmp_path, ("data.strategy=distribution_aware", "data.strategy.clusters=2"))
    old = settings_of(shards.folder)
    config = read_config("svm", Flags(workers=2, sets=["data.test=0.2", "data.strategy=random"]))
    assert old["data"]["test"] == config.data.test

    manifest = reshard(shards.folder, config, tmp_path / "two")

    found = open_shards(tmp_path / "two")
    for part in (found.shard(0), found.shard(1), found.part("test")):
        np.testing.assert_array_equal(part.weights, weights[part.ids])
    assert manifest.train_weights == shards.manifest.train_weights


def test_the_rows_that_are_scored_come_with_their_weights(tmp_path: Path) -> None:
    shards, weights = sharded(tmp_path)

    found = split_weights(shards, 0)

    every = np.concatenate([shards.ids(number) for number in range(3)])
    np.testing.assert_array_equal(found["train"], weights[every])
    np.testing.assert_array_equal(found["test"], weights[shards.part("test").ids])


def test_of_many_rows_those_that_count_are_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "".join(f"{(-1, 1)[i % 2]} 1:{1 + i} 2:1\n" for i in range(60))
    path = labelled(tmp_path, "\n".join("1" if i in (20, 21, 40, 41) else "0" for i in range(60)), rows)
    make_shards(read_config("svm", Flags(data=f"{path},{path}", workers=1)), tmp_path / "shards")
    shards = open_shards(tmp_path / "shards")
    monkeypatch.setattr(scorer, "_CALIBRATION", 3)

    np.testing.assert_array_equal(split_weights(shards, 0)["train"], [1, 1, 1])
    assert len(open_splits(shards, 0)["train"][1]) == 3


# in the scores
def test_scores_are_those_of_sample_weight() -> None:
    rng = np.random.default_rng(0)
    labels, margins = rng.choice([-1, 1], 50).astype(np.float32), rng.normal(size=50).astype(np.float32)
    own = rng.choice([0, 1, 2.5], 50).astype(np.float32)
    called = np.where(margins > 0, 1, -1)

    hits = Hits.of(labels, margins, own)

    by_scikit_learn = [accuracy_score, precision_score, recall_score, f1_score]
    expected = [measure(labels, called, sample_weight=own) for measure in by_scikit_learn]
    assert [hits.accuracy, hits.precision, hits.recall, hits.f1] == pytest.approx(expected)
    assert hits.majority == pytest.approx(max(own[labels > 0].sum(), own[labels < 0].sum()) / own.sum())


def test_scores_of_several_classes_are_those_of_sample_weight() -> None:
    rng = np.random.default_rng(1)
    labels, called, own = rng.integers(0, 3, 60), rng.integers(0, 3, 60), rng.uniform(0, 2, 60).astype(np.float32)

    hits = Hits.of_classes(labels.astype(np.float32), called, own)

    assert hits.f1 == pytest.approx(f1_score(labels, called, sample_weight=own, average="macro"))
    assert hits.accuracy == pytest.approx(accuracy_score(labels, called, sample_weight=own))
    assert hits.majority == pytest.approx(max(np.bincount(labels, own)) / own.sum())


@pytest.mark.parametrize("classes", [2, 3])
def test_a_row_of_weight_two_scores_as_two_rows(classes: int) -> None:
    rng = np.random.default_rng(2)
    features, labels = csr_array(rng.normal(size=(20, 4)).astype(np.float32)), rng.integers(0, classes, 20)
    twice = np.repeat(np.arange(20), 1 + (np.arange(20) % 2))
    weights = rng.normal(size=4 if classes == 2 else 12).astype(np.float32)
    own = 1 + (np.arange(20, dtype=np.float32) % 2)

    once, rows = Examples.of(features, labels, classes=classes), (features[twice], labels[twice])
    one = score(once, weights, Objective(lam=0.1), classes=classes, own=own)
    two = score(Examples.of(*rows, classes=classes), weights, Objective(lam=0.1), classes=classes)

    assert one == pytest.approx(two)
    assert majorities({"test": labels}, {"test": own})["test_majority"] == pytest.approx(two.majority)


def test_rows_of_which_none_counts_are_not_scored() -> None:
    examples = Examples.of(csr_array(np.eye(2, dtype=np.float32)), np.array([0, 1]))
    with pytest.raises(DataError, match=r"weights of all 2 rows to score are 0; expected at least one above 0"):
        score(examples, np.zeros(2, np.float32), Objective(), own=np.zeros(2, np.float32))


# in the training
def test_balanced_class_weights_go_by_the_weights_of_the_rows(tmp_path: Path) -> None:
    from sklearn.utils.class_weight import compute_class_weight

    labels, own = np.array([0, 0, 0, 1]), np.array([0.25, 0.25, 0.25, 0.25], np.float32)
    each = compute_class_weight("balanced", classes=np.array([0, 1]), y=labels, sample_weight=own)

    found = costs_of(labels, "balanced", ("0", "1"), counted(labels, own), own)

    np.testing.assert_allclose(found, each[labels] * own)
    shards, weights = sharded(tmp_path)
    ids = np.concatenate([shards.ids(number) for number in range(3)])
    assert class_counts(shards.manifest) == counted(ids % 2, weights[ids])


@pytest.fixture(scope="module")
def weighted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Dataset, float]:
    """The set `scales` in a file, its positive rows weighing more and some negative ones nothing; LinearSVC's F1."""
    data, rng = scales(), np.random.default_rng(0)
    labels, folder = data.train.labels, tmp_path_factory.mktemp("weighted")
    weights = np.where(labels == 1, 6.0, rng.random(len(labels)) < 0.7) * rng.uniform(0.5, 1.5, len(labels))
    own = np.random.default_rng(1).uniform(0, 3, len(data.test.labels))  # type: ignore[union-attr]
    path = written(data, folder, "scales")
    np.savetxt(f"{path}.weight", weights)
    np.savetxt(f"{path}.t.weight", own)
    svc = LinearSVC(dual=False, tol=1e-8, max_iter=10_000)  # with its own tol it stops too early on some machines
    said = svc.fit(data.train.features, labels, sample_weight=weights).predict(data.test.features)
    unweighted = svc.fit(data.train.features, labels).predict(data.test.features)
    recalls = [recall_score(data.test.labels, each, sample_weight=own) for each in (said, unweighted)]
    assert recalls[0] > recalls[1] + 0.1, "or the weights would not show"
    return path, data, float(f1_score(data.test.labels, said, sample_weight=own))


def test_one_machine_reaches_linear_svc_with_sample_weight(
    weighted: tuple[Path, Dataset, float], tmp_path: Path
) -> None:
    path, _, expected = weighted

    told = train_here(read_config("svm", Flags(data=str(path))), 1, False, tmp_path)

    assert told.metrics["test_f1"] == pytest.approx(expected, abs=CLOSE)
    assert told.metrics["test_recall"] > 0.8
    assert told.lines()[0].startswith("scales.weight: its 6,000 rows have weights from 0 to ")
    applied = CliRunner().invoke(app, ["predict", str(tmp_path / "last.safetensors"), f"{path}.t"])
    assert "scales.t.weight: its 6,000 rows have weights from" in applied.output
    assert f"f1 {told.metrics['test_f1']:.4f}" in applied.output, applied.output


def test_all_weights_alike_are_another_c(tmp_path: Path) -> None:
    path = written(scales(), tmp_path, "scales")
    other = read_config("svm", Flags(data=str(path), epochs=5, sets=["svm.objective.c=0.01"]))
    plain = train_here(other, 1, False, tmp_path)
    np.savetxt(f"{path}.weight", np.full(6000, 0.01))

    weighted = train_here(read_config("svm", Flags(data=str(path), epochs=5)), 1, False, tmp_path)

    assert weighted.metrics == pytest.approx(plain.metrics, abs=1e-4)


@pytest.mark.nightly  # 8 s of CPU time; by day the same weights are tried with workers in this process
def test_real_processes_with_streamed_shards_reach_linear_svc_with_sample_weight(
    weighted: tuple[Path, Dataset, float], tmp_path: Path
) -> None:
    path, _, expected = weighted
    given = {"path": str(path), "source": "server"}

    result = paceline.train("svm", workers=2, data=given, folder=tmp_path / "run", show=None)

    assert result.metrics["test_f1"] >= expected - CLOSE, "asynchronous workers may come out above it, too"
    assert result.metrics["test_recall"] > 0.8
