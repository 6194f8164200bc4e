"""MLlib's models on a small table: they agree with scikit-learn's. One session for all."""

import os
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import csv

from paceline.core.errors import ConfigError
from paceline.core.folders import names
from paceline_papers.baseline.baseline import Baseline, Wanted, table
from paceline_papers.baseline.encoding import encoding, index_arrays, labels
from paceline_papers.baseline.engine import Cluster, Point
from paceline_papers.baseline.engines.standalone import master
from paceline_papers.baseline.kill import Kill
from paceline_papers.baseline.mllib import submitted, trained
from paceline_papers.baseline.mllib_process import train
from paceline_papers.baseline.model import MODELS
from paceline_papers.baseline.read_csv import read_csv
from tests.support.small_shards import made

pytest.importorskip("pyspark", reason="pyspark is not installed here: make spark")
pytestmark = [
    pytest.mark.nightly,  # a session and two clusters of Spark take 150 s of CPU time; only `paceline baseline` needs them
    pytest.mark.skipif(
        not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="Spark needs Java, here is none"
    ),
]
ROWS = 3_000
ONE_TASK = {"spark.sql.files.minPartitionNum": "1", "spark.sql.shuffle.partitions": "1"}
"""A job of so few rows takes longer for each further task."""


@pytest.fixture(scope="module", autouse=True)
def quick_java():
    """Java that does not warm up for long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="module")
def baseline(tmp_path_factory):
    made = Baseline("h1b-like", ROWS, 0, tmp_path_factory.mktemp("baseline"))
    list(made.train(Wanted(names(MODELS), ["sklearn"], [1], ["memory"])))
    return made


@pytest.fixture(scope="module")
def mllib(baseline):
    """What this process's session gives, by the name of the variant."""
    points = Wanted(names(MODELS), ["local"], [1], ["memory"]).points()
    as_sent = [{name: getattr(point, name) for name in point.__slots__} for point in points]
    spec = {"master": "local[1]", "settings": ONE_TASK, "kill": False, "folder": str(baseline.split().folder)}
    spec["points"] = as_sent
    return {point["variant"]: found for point, found in train(spec)}


def test_mllib_makes_the_features_that_scikit_learn_gets(baseline, mllib):
    from pyspark.ml import Pipeline
    from pyspark.sql import SparkSession

    split = baseline.split()
    spark = SparkSession.getActiveSession()
    train, test = (spark.read.parquet(str(split.folder / part)) for part in ("train", "test"))
    fitted = Pipeline(stages=encoding("index").stages(split)).fit(train)
    ours = encoding("index").arrays(split)
    for part, own in zip((train, test), ours, strict=True):
        theirs = np.array([row["features"].toArray() for row in fitted.transform(part).select("features").collect()])
        assert sorted(map(tuple, theirs.round(9))) == sorted(map(tuple, np.asarray(own).round(9)))
    assert index_arrays(split)[0].max() > 50


@pytest.mark.parametrize(
    ("variant", "features", "apart"),
    [
        ("bayes, smoothing 1", "index", 0.002),
        ("tree, depth 5", "index", 0.03),
        ("lr, 20 steps", "onehot", 0.01),
        ("lr, L1 0.001", "onehot", 0.01),
    ],
)
def test_mllib_and_scikit_learn_agree(baseline, mllib, variant, features, apart):
    ours = baseline.kept.figures[f"sklearn, {variant}, {features}", 0]["confusion"]

    right, other = (np.trace(each) / np.sum(each) for each in (ours, mllib[variant]["confusion"]))
    assert other == pytest.approx(right, abs=apart)
    assert np.sum(ours) == np.sum(mllib[variant]["confusion"]) == baseline.split().test_rows


def test_mllib_and_scikit_learn_make_as_many_weights_0_by_l1(baseline, mllib):
    ours = baseline.kept.figures["sklearn, lr, L1 0.001, onehot", 0]

    assert mllib["lr, L1 0.001"]["weights"] == pytest.approx(ours["weights"], rel=0.25)
    assert mllib["lr, L1 0.001"]["log_loss"] == pytest.approx(ours["log_loss"], rel=0.01)
    assert ours["weights"] < mllib["lr, 20 steps"]["weights"] / 5


def test_mllib_gets_the_features_of_shards(mllib, tmp_path):
    from pyspark.ml import Pipeline
    from pyspark.sql import SparkSession

    made(tmp_path / "shards", is_sparse=True)
    split = Baseline("shards", 0, 0, tmp_path / "out", str(tmp_path / "shards")).split()
    train = SparkSession.getActiveSession().read.parquet(str(split.folder / "train"))
    given = Pipeline(stages=encoding("given").stages(split)).fit(train).transform(train)
    theirs = [(*row["features"].toArray(), row["label"]) for row in given.collect()]
    ours = np.column_stack([encoding("given").arrays(split)[0].toarray(), labels(split)[0]])

    assert sorted(theirs) == sorted(map(tuple, ours))


@pytest.mark.parametrize("name", ["h1b", "fire"])
def test_spark_reads_the_cells_of_a_csv_that_our_reader_does(mllib, tmp_path, name):
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col, date_format

    kind, file = table(name), tmp_path / "table.csv"
    columns = kind.made_up(500, np.random.default_rng(0)).columns
    for date in kind.dates:
        columns[date] = pc.strftime(pa.array(columns[date]), format=kind.date_form)
    csv.write_csv(pa.table(columns), file)
    kinds = dict.fromkeys(kind.numbers, "double") | dict.fromkeys(kind.dates, "timestamp")
    schema = ", ".join(f"`{each}` {kinds.get(each, 'string')}" for each in columns)
    reader = SparkSession.getActiveSession().read.option("timestampFormat", "MM/dd/yyyy hh:mm:ss a")
    shown = [
        date_format(col(f"`{each}`"), "yyyy-MM-dd HH:mm:ss") if each in kind.dates else col(f"`{each}`")
        for each in columns
    ]
    theirs = reader.csv(str(file), schema=schema, header=True, mode="FAILFAST").select(shown).collect()
    ours = read_csv(kind, kind.label, str(file))
    ours |= {each: pc.strftime(ours[each], format="%Y-%m-%d %H:%M:%S") for each in kind.dates}

    assert sum(ours[each].null_count for each in columns) > 20
    assert [tuple(row) for row in theirs] == list(zip(*(ours[each].to_pylist() for each in columns), strict=True))


@pytest.mark.timeout(600)
def test_an_executor_that_is_killed_in_mid_training_changes_no_model(baseline, tmp_path):
    point = Point("killed", "lr", "lr, 3 steps", "onehot", executors=2)
    ((got, found),) = trained(master(2), 1024, baseline.split(), [point], tmp_path / "log", kill=True)
    kill = Kill(**found["kill"])

    assert got == point
    assert 1 <= kill.jobs // 2 < kill.job
    assert kill.numbers > 1_000
    assert kill.apart is not None
    assert kill.apart < 1e-12
    assert np.sum(found["confusion"]) == baseline.split().test_rows
    assert "code 137" in (tmp_path / "log").read_text()


@pytest.mark.timeout(600)
def test_spark_submit_trains_the_model_that_a_session_of_ours_does(baseline, mllib, tmp_path):
    cluster = Cluster("local-cluster[1,1,1024]", ["spark.driver.host=127.0.0.1", *map("=".join, ONE_TASK.items())])
    point = Point("submit", "lr", "lr, 3 steps", "onehot", executors=1)
    ((got, found),) = submitted(cluster, baseline.split(), [point], tmp_path / "log")

    assert got == point
    assert found["confusion"] == mllib["lr, 3 steps"]["confusion"]
    assert found["cpu"] is None


def test_a_spark_that_does_not_start_is_told(baseline, monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    points = Wanted(["lr"], ["local"], [1], ["memory"]).points()

    with pytest.raises(ConfigError, match=r"Spark does not start: .* Its log: "):
        list(trained("local[1]", 1024, baseline.split(), points, tmp_path / "log"))
