"""Made-up tables, the split, features, scikit-learn's models, and what is kept and told of them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from paceline.core.errors import ConfigError, UsageError
from paceline.core.folders import names
from paceline_papers.baseline import split as splits
from paceline_papers.baseline.baseline import TABLES, Baseline, Wanted, papers_models, table
from paceline_papers.baseline.encoding import MOST, encoding, index_arrays, number_arrays
from paceline_papers.baseline.engine import Cluster, in_turns
from paceline_papers.baseline.kill import Kill, comparable
from paceline_papers.baseline.mllib import spark_submit
from paceline_papers.baseline.model import MODELS
from paceline_papers.baseline.results import Results
from paceline_papers.baseline.scores import scores
from paceline_papers.baseline.split import Split
from paceline_papers.baseline.table import Table

ALL = Wanted(names(MODELS), ["sklearn"], [1], ["memory"])


class Small(Table):
    """What the test writes."""

    texts = ("colour", "shape")
    numbers = ("size",)
    dates = ("day",)
    label = "kind"
    rows = 10

    def made_up(self, rows, rng):
        raise NotImplementedError


@pytest.fixture
def small(tmp_path):
    rows = 1_000
    rng = np.random.default_rng(0)
    columns = {
        "kind": pa.array(np.where(rng.random(rows) < 0.8, "b", "a")),
        "colour": pa.array([None if number % 10 == 0 else f"colour {number % 300}" for number in range(rows)]),
        "shape": pa.array(["round", "flat"] * (rows // 2)),
        "size": pa.array([None if number % 7 == 0 else float(number) for number in range(rows)]),
        "day": pa.array([np.datetime64("2020-02-29T13:00:00")] * rows),
    }
    return splits.write(Small(), "kind", columns, 3, tmp_path / "data")


@pytest.mark.parametrize("name", names(TABLES))
def test_a_made_up_table_is_the_same_for_a_seed_and_has_its_signal(name, tmp_path):
    first, again = (splits.make_up(table(name), 4_000, 5, tmp_path / folder) for folder in ("a", "b"))

    for file in first.folder.rglob("*.parquet"):
        assert file.read_bytes() == (again.folder / file.relative_to(first.folder)).read_bytes()
    assert set(first.texts) | set(first.numbers) < set(first.columns("train").column_names)
    majority = (first.columns("test")["label"].to_numpy() == 0).mean()
    assert majority + 0.01 < first.best < 1


@pytest.mark.parametrize("name", names(TABLES))
def test_the_classes_have_their_shares(name, tmp_path):
    made = table(name).made_up(20_000, np.random.default_rng(0))
    shares = sorted(
        (each["counts"] / 20_000 for each in made.columns[table(name).label].value_counts().to_pylist()), reverse=True
    )

    module = __import__(type(table(name)).__module__, fromlist=["SHARES"])
    assert shares == pytest.approx(sorted(module.SHARES, reverse=True), abs=0.01)


def test_seven_rows_of_ten_are_trained_on(small):
    assert small.train_rows + small.test_rows == 1_000
    assert small.train_rows == pytest.approx(700, abs=50)
    assert Split.of(small.folder) == small


def test_the_first_class_is_the_most_frequent_one(small):
    assert small.classes == ["b", "a"]


def test_a_date_becomes_month_weekday_and_hour(small):
    train = small.columns("train")

    assert [train[f"day, {part}"][0].as_py() for part in ("month", "weekday", "hour")] == ["2", "5", "13"]


def test_rare_and_unknown_texts_are_one_and_the_most_frequent_index_is_0(small):
    train, test = index_arrays(small)

    assert train[:, 0].max() == test[:, 0].max() == MOST
    counts = np.bincount(train[:, 0])
    assert counts[0] == counts.max()


def test_numbers_lie_between_0_and_1_with_the_mean_of_the_training_part_in_empty_cells(small):
    train, test = number_arrays(small)

    assert train.min() == 0
    assert train.max() == pytest.approx(1)
    assert 0 <= test.min() <= test.max() <= 1.000001
    empty = np.isnan(small.columns("train")["size"].to_numpy())
    assert train[empty] == pytest.approx(train[~empty].mean())


def test_every_encoding_gives_both_parts_the_same_features(small):
    for name in sorted({*names("paceline_papers.baseline.encodings")} - {"given"}):
        train, test = encoding(name).arrays(small)
        assert train.shape == (small.train_rows, test.shape[1])
        assert test.shape[0] == small.test_rows
        assert train.min() >= 0


def test_ppv_is_the_share_of_right_answers():
    found = scores([[6, 2, 0], [1, 3, 0], [1, 0, 0]])

    assert found["accuracy"] == 9 / 13
    assert found["ppv"] == [6 / 8, 3 / 5, None]
    assert found["ppv_macro"] == pytest.approx((6 / 8 + 3 / 5) / 3)
    assert found["ppv_weighted"] == pytest.approx((8 * 6 / 8 + 4 * 3 / 5) / 13)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    baseline = Baseline("fire-like", 5_000, 0, folder)
    assert len(list(baseline.train(ALL))) == 8
    return folder


def test_what_is_trained_is_not_trained_again(trained):
    assert list(Baseline("fire-like", 5_000, 0, trained).train(ALL)) == []


def test_tree_and_logistic_regression_are_above_naive_bayes_and_below_the_best(trained):
    baseline = Baseline("fire-like", 5_000, 0, trained)
    found = {run["variant"]: run["accuracy"] for run in Results(baseline, ALL).plain()["runs"]}

    assert min(found["tree, depth 5"], found["lr, 20 steps"]) > max(
        found[f"bayes, smoothing {each}"] for each in (1, 500)
    )
    assert max(found.values()) < baseline.split().best + 0.03


def test_table_picture_and_json_are_written(trained):
    Results(Baseline("fire-like", 5_000, 0, trained), ALL).write()

    assert (trained / "seconds.png").read_bytes().startswith(b"\x89PNG")
    text = (trained / "table.txt").read_text()
    assert "| sklearn | lr, 20 steps | onehot |" in text
    assert "The best possible model has" in text
    told = json.loads((trained / "results.json").read_text())
    assert told["table"] == "fire-like"
    assert sum(map(sum, told["runs"][0]["confusion"])) == told["test_rows"]


def test_only_the_papers_models_are_trained_where_none_is_named():
    assert papers_models() == ["bayes", "lr", "tree"]


def test_more_l1_leaves_fewer_weights_and_the_terminal_has_their_numbers_where_they_differ(trained):
    results = Results(Baseline("fire-like", 5_000, 0, trained), ALL)
    weights = {run["variant"]: run["weights"] for run in results.plain()["runs"]}

    assert weights["lr, 20 steps"] > weights["lr, L1 0.0001"] > weights["lr, L1 0.001"] > 20
    assert weights["tree, depth 5"] is None
    columns, rows = results.short()
    assert list(columns) == ["accuracy", "PPV, weighted", "log loss", "weights", "train (s)", "CPU (s)"]
    assert {row[5] for row in rows if row[1] == "lr, L1 0.001"} == {str(weights["lr, L1 0.001"])}
    own, _ = Results(Baseline("fire-like", 5_000, 0, trained), replace(ALL, models=papers_models())).short()
    assert "weights" not in own


def test_a_folder_of_another_table_is_refused(trained):
    with pytest.raises(ConfigError, match="holds runs of format 1, table fire-like, rows 5000"):
        Baseline("h1b-like", 5_000, 0, trained)


def test_a_folder_of_runs_with_other_settings_of_spark_is_refused(trained):
    with pytest.raises(ConfigError, match=r"conf None; this command makes .*conf spark\.executor\.memory=4g.*--out"):
        Baseline("fire-like", 5_000, 0, trained, settings=["spark.executor.memory=4g"])


def test_another_pod_goes_on_with_the_runs_of_a_pod_that_died(tmp_path):
    Baseline("h1b-like", 1_000, 0, tmp_path, settings=["spark.driver.host=10.0.0.4", "a=b"]).kept.add(("x", 0), {}, 1.0)

    again = Baseline("h1b-like", 1_000, 0, tmp_path, settings=["spark.driver.host=10.0.0.5", "a=b"])
    assert ("x", 0) in again.kept


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ({"models": ["forest"]}, r"--model forest: expected bayes, l1, lr, ovr or tree, or several with commas"),
        (
            {"engines": ["yarn"]},
            "--engine yarn: expected killed, local, lockstep, paceline, sklearn, standalone or submit",
        ),
        ({"models": ["tree", "bayes"], "engines": ["paceline"]}, "paceline has no tree or bayes: not trained. Give"),
        ({"storages": ["tape"]}, "--storage tape: expected memory or disk"),
        ({"executors": [0]}, "--executors 0: expected 1 or more"),
        ({"executors": []}, "--executors : expected 1 or more"),
        ({"engines": ["submit"]}, "--engine submit goes with --master, like --master spark://host:7077"),
        ({"cluster": Cluster("yarn")}, "--engine submit goes with --master"),
        (
            {"cluster": Cluster("", ["a=b"])},
            "--conf a=b: expected NAME=VALUE, a setting of Spark's, together with --master",
        ),
        ({"cluster": Cluster("yarn", ["memory"]), "engines": ["submit"]}, "--conf memory: expected NAME=VALUE"),
    ],
)
def test_what_there_is_not_is_refused(what, told):
    with pytest.raises(UsageError, match=told):
        Wanted(**{"models": ["lr"], "engines": ["sklearn"], "executors": [1], "storages": ["memory"], **what})


def test_an_engine_trains_the_models_that_it_has_and_says_which_it_has_not():
    wanted = Wanted(names(MODELS), ["paceline", "sklearn"], [1, 2], ["memory", "disk"])

    assert {point.kind for point in wanted.points() if point.engine == "paceline"} == {"l1", "lr", "ovr"}
    assert len([point for point in wanted.points() if point.engine == "sklearn"]) == 8
    assert wanted.lacking() == ["paceline has no bayes or tree: not trained."]


@pytest.mark.parametrize("kind", names(MODELS))
def test_memory_and_disk_come_first_equally_often_over_executors_and_over_seeds(kind):
    first = [
        [in_turns(Wanted([kind], ["local"], [count], ["memory", "disk"]).points(), seed)[0].storage for count in (1, 2)]
        for seed in range(2)
    ]

    assert first == [["disk", "memory"], ["memory", "disk"]]


def test_taking_turns_keeps_trainings_with_the_same_features_together():
    points = Wanted(names(MODELS), ["local"], [1], ["memory", "disk"]).points()
    turned = in_turns(points, 0)

    assert sorted(turned, key=points.index) == points
    assert [point.storage for point in turned] == ["disk"] * 8 + ["memory"] * 8
    assert [point.variant for point in turned[:8]] == [point.variant for point in points[:8]]


def test_models_of_other_sizes_are_not_comparable():
    assert comparable([1.0, -4.0], [1.0, -3.0]) == 0.25
    assert comparable([0.0], [0.0]) == 0.0
    assert comparable([1.0], [1.0, 2.0]) is None


def test_what_a_killed_executor_changed_is_told():
    assert str(Kill(3, 5, 1688, 3.5e-16)) == (
        "an executor was killed in job 3 of 5; the model of 1,688 numbers differs by at most 4e-16 of its largest number"
    )
    assert "is another" in str(Kill(3, 5, 10, None))


def test_a_cluster_that_had_other_executors_is_told(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "own")
    baseline = Baseline("fire-like", 5_000, 0, tmp_path / "own")
    wanted = Wanted(["l1"], ["submit"], [1, 2], ["memory"], cluster=Cluster("spark://host:7077"))
    found = baseline.kept.figures["sklearn, lr, L1 0.001, onehot", 0]
    for point in wanted.points():
        baseline.kept.add((point.name, 0), {**found, "there": 2}, 1.0)

    assert Results(baseline, wanted).notes() == [
        f"submit, lr, L1 {strength}, onehot, 1 executor, memory: the cluster had 2 executors, so its seconds are of as many."
        for strength in ("0.0001", "0.001")
    ]


def test_paceline_has_workers_for_executors_and_no_storage():
    wanted = Wanted(["ovr"], ["paceline", "lockstep"], [1, 3], ["memory", "disk"])

    assert [point.name for point in wanted.points()] == [
        f"{name}, ovr, 20 steps, onehot, {workers}"
        for name in ("paceline", "lockstep")
        for workers in ("1 worker", "3 workers")
    ]


def test_an_unknown_table_is_refused(tmp_path):
    with pytest.raises(
        UsageError, match="No table is called 'iris'; expected fire-like, h1b-like, fire, h1b or shards"
    ):
        Baseline("iris", 100, 0, tmp_path)


def test_without_pyspark_the_extra_and_make_spark_are_named(monkeypatch):
    monkeypatch.setattr("paceline_papers.baseline.mllib.is_installed", lambda library: False)

    with pytest.raises(ConfigError, match=r"pip install 'paceline\[spark\]'.* make spark\. .*--engine sklearn"):
        Wanted(["lr"], ["local"], [1], ["memory"]).check()


def test_spark_submit_is_that_of_spark_home_then_that_of_the_path(monkeypatch, tmp_path):
    (tmp_path / "spark-submit").write_text("")
    (tmp_path / "spark-submit").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert spark_submit() == tmp_path / "spark-submit"

    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    assert str(spark_submit()) == "/opt/spark/bin/spark-submit"


def test_a_spark_home_without_spark_submit_is_told_before_anything_starts(monkeypatch, tmp_path):
    monkeypatch.setattr("paceline_papers.baseline.engines.submit.check_spark", lambda: None)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    with pytest.raises(ConfigError, match=r"There is no .*/bin/spark-submit\. Set SPARK_HOME"):
        Wanted(["lr"], ["submit"], [1], ["memory"], cluster=Cluster("yarn")).check()


def test_one_seed_a_folder(tmp_path: Path):
    first, second = (splits.make_up(table("fire-like"), 500, seed, tmp_path / str(seed)) for seed in (0, 1))

    assert not first.columns("train").equals(second.columns("train"))
