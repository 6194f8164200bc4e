"""The spark engine makes the same shards as the local one, and says what is wrong in a line. By day test_sharding.py looks at
what needs no Spark."""

import importlib
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.settings.config import Config
from paceline.data.dataset import Selection
from paceline.data.manifest import read_manifest
from paceline.data.npz import read_npy
from paceline.data.progress import SILENT, Progress
from paceline.sharder.clustering import Clustering
from paceline.sharder.engine import Source
from paceline.sharder.engines.local import Local
from paceline.sharder.engines.spark import Spark
from paceline.sharder.sharding import make_shards
from tests.support.tree import ROOT

pytest.importorskip("pyspark", reason="pyspark is not installed here: make spark")
pytestmark = [
    pytest.mark.nightly,  # Java and its executors take a minute of CPU time, and `make test` installs no pyspark
    pytest.mark.skipif(
        not (shutil.which("java") or os.environ.get("JAVA_HOME")), reason="Spark needs Java, here is none"
    ),
]
ENGINE = {"name": "spark", "master": "local[2]"}
SPARK = Spark(master="local[2]")
"""All tests share its session: Java takes seconds to start."""
TASK = """
import numpy as np
from paceline.extend import Dataset, Labelled
def data(path):
    features = np.random.default_rng(0).normal(size=(600, 2, 3)).astype(np.float32)
    {more}
    return Dataset(Labelled(features, np.arange(600) % 3))
def model():
    raise NotImplementedError
"""
SPARSE = (
    "from scipy.sparse import csr_array; features = csr_array(np.where(features > 0.5, features, 0).reshape(600, 6))"
)
ROWS, BLOBS = 3_000, 6


@pytest.fixture(scope="module", autouse=True)
def small_jobs():
    """Java that does not warm up for long, and several tasks for few examples."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        patch.setattr("paceline.sharder.engines.spark.ROWS", 1_000)
        yield


class Counted(Progress):
    """Counts the examples that are done."""

    def __init__(self):
        self.done = 0

    def advance(self, count):
        self.done += count


@pytest.fixture(params=["", SPARSE], ids=["dense", "sparse"])
def task(request, tmp_path):
    path = tmp_path / "made.py"
    path.write_text(TASK.format(more=request.param))
    return path


@pytest.fixture
def blobs(tmp_path):
    """Six clouds of points in 30 dimensions, of unequal size, in files that are mapped."""
    rng = np.random.default_rng(0)
    cloud = rng.choice(BLOBS, ROWS, p=[0.3, 0.25, 0.2, 0.15, 0.07, 0.03])
    features = rng.normal(0, 4, (BLOBS, 30))[cloud] + rng.normal(size=(ROWS, 30))
    return saved(tmp_path, features.astype(np.float32), cloud)


def saved(folder, features, labels):
    paths = folder / "features.npy", folder / "labels.npy"
    for path, array in zip(paths, (features, labels), strict=True):
        np.save(path, array)
    return Source(read_npy(*paths), partial(read_npy, *paths))


def everything(source):
    return Selection(source.dataset.train, np.arange(len(source.dataset.train)))


def make(task, out, engine, strategy):
    data = {"strategy": strategy, "engine": engine}
    return make_shards(Config.model_validate({"task": str(task), "workers": 5, "data": data}), out)


def inertia(features, clusters):
    """Squared distances to the middle of each one's cluster, summed."""
    return sum(
        float(((own - own.mean(0)) ** 2).sum()) for own in (features[clusters == c] for c in np.unique(clusters))
    )


def run(*command, **environment):
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "PYSPARK_"))}
    return subprocess.run(
        list(map(str, command)), capture_output=True, text=True, env=plain | environment, check=False, timeout=200
    )


@pytest.mark.parametrize("strategy", ["random", "stratified"])
def test_spark_makes_the_very_same_shards(task, tmp_path, strategy):
    local, spark = (make(task, tmp_path / str(engine), engine, strategy) for engine in ("local", ENGINE))

    assert spark.fingerprint == local.fingerprint


@pytest.mark.parametrize("task", [""], indirect=True)
def test_one_engine_finds_what_the_other_has_made(task, tmp_path):
    made = make(task, tmp_path / "out", ENGINE, "random")
    before = (tmp_path / "out/manifest.json").stat()

    assert make(task, tmp_path / "out", "local", "random") == made
    assert (tmp_path / "out/manifest.json").stat() == before


def test_every_shard_gets_its_part_of_sparse_and_dense_clusters(task, tmp_path):
    strategy = {"name": "distribution_aware", "clusters": 4, "iterations": 3}
    local, spark = (make(task, tmp_path / str(engine), engine, strategy) for engine in ("local", ENGINE))

    assert spark.recipe == local.recipe
    assert spark.sizes == local.sizes
    for cluster in range(4):
        counts = [shard.clusters.get(str(cluster), 0) for shard in spark.shards]
        assert max(counts) - min(counts) <= 1


def test_clusters_are_as_tight_as_those_of_the_local_engine(blobs):
    train, how = everything(blobs), Clustering(BLOBS, 10, 20, True)
    progress = Counted()

    local = Local().cluster(blobs, train, how, np.random.default_rng(1), SILENT)
    spark = SPARK.cluster(blobs, train, how, np.random.default_rng(1), progress)

    features = train.features
    assert inertia(features, spark) == pytest.approx(inertia(features, local), rel=0.03)
    assert sorted(np.bincount(spark)) == pytest.approx(sorted(np.bincount(local)), rel=0.03)
    assert spark.dtype == np.int64
    assert progress.done == ROWS


def test_one_cluster_is_everything(blobs):
    found = SPARK.cluster(blobs, everything(blobs), Clustering(1, 10, 20, True), np.random.default_rng(1), SILENT)

    assert found.tolist() == [0] * ROWS


def test_equal_seeds_give_equal_clusters(blobs):
    train, how = everything(blobs), Clustering(2 * BLOBS, 10, 3, True)

    first, second = (SPARK.cluster(blobs, train, how, np.random.default_rng(3), SILENT) for _ in range(2))

    assert np.array_equal(first, second)


def test_only_the_rows_asked_for_are_clustered(blobs):
    rows = np.random.default_rng(0).permutation(ROWS)[:500]
    clouds = blobs.dataset.train.labels[rows]

    found = SPARK.cluster(
        blobs, Selection(blobs.dataset.train, rows), Clustering(BLOBS, 10, 20, False), np.random.default_rng(0), SILENT
    )

    assert len({*zip(clouds.tolist(), found.tolist(), strict=True)}) == BLOBS


def test_the_digest_is_that_of_the_data_set(blobs):
    progress = Counted()

    assert SPARK.digest(blobs, progress) == blobs.dataset.digest()
    assert progress.done == ROWS


def test_bad_data_that_a_task_finds_is_told_in_one_line(tmp_path):
    features = np.zeros((50, 3))
    features[7, 1] = np.nan

    with pytest.raises(DataError) as told:
        SPARK.digest(saved(tmp_path, features, np.arange(50)), SILENT)

    assert str(told.value) == "The features of example 7 hold NaN or infinity; correct or remove the example."


def test_data_that_executors_do_not_have_is_told(blobs, tmp_path):
    elsewhere = Source(blobs.dataset, partial(read_npy, tmp_path / "gone.npy", tmp_path / "labels.npy"))

    with pytest.raises(DataError, match=r"gone\.npy"):
        SPARK.cluster(elsewhere, everything(blobs), Clustering(3, 2, 5, True), np.random.default_rng(0), SILENT)


def test_fewer_examples_than_clusters_are_told(blobs):
    few = everything(blobs).pick(np.arange(3))

    with pytest.raises(DataError, match=r"3 training examples can't make 4 clusters"):
        SPARK.cluster(blobs, few, Clustering(4, 2, 5, True), np.random.default_rng(0), SILENT)


def test_an_executor_that_does_not_see_the_folder_is_told(blobs, tmp_path):
    with pytest.raises(DiskError, match=r"does not see .*volume that the driver and all executors have"):
        SPARK.write(blobs, tmp_path / "gone/draft", {"shard-0": everything(blobs)}, SILENT)


def test_a_folder_that_an_executor_cannot_write_to_is_told(blobs, tmp_path):
    (tmp_path / "shard-0").write_text("in the way")

    with pytest.raises(DiskError, match=r"can't write shard-0 to .*File exists"):
        SPARK.write(blobs, tmp_path, {"shard-0": everything(blobs)}, SILENT)


def test_what_a_lost_task_left_behind_is_taken_away(blobs, tmp_path):
    (tmp_path / "shard-0").mkdir()
    (tmp_path / "shard-0/features.npy").write_bytes(b"half")
    progress = Counted()

    files = SPARK.write(blobs, tmp_path, {"shard-0": everything(blobs)}, progress)["shard-0"]

    assert {name: entry.bytes for name, entry in files.items()} == {
        path.stem: path.stat().st_size for path in (tmp_path / "shard-0").iterdir()
    }
    assert progress.done == ROWS


def test_code_that_executors_lack_is_told(blobs, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def read(*arguments): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    only_here = Source(blobs.dataset, importlib.import_module("only_here").read)

    with pytest.raises(ConfigError, match=r"package is missing on a Spark executor: .*only_here"):
        SPARK.digest(only_here, SILENT)


@pytest.mark.parametrize(
    ("master", "environment"), [("local[2]", {"JAVA_HOME": "/nowhere"}), ("nonsense", {})], ids=["no Java", "no master"]
)
def test_a_spark_that_does_not_start_is_told(tmp_path, master, environment):
    words = ["-m", "paceline.sharder", "--out", tmp_path / "out", "--set", "task=digits"]
    engine = ["--set", "data.engine.name=spark", "--set", f"data.engine.master={master}"]

    ended = run(sys.executable, *words, *engine, **environment)

    assert ended.returncode == ConfigError.exit_code
    assert f"data.engine.master is {master}" in ended.stderr.splitlines()[-1]
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "out").exists()


def test_spark_submit_runs_the_sharder(tmp_path):
    submit, entry = Path(sys.executable).with_name("spark-submit"), ROOT / "sharder/__main__.py"

    settings = ["--set", "task=digits", "--set", "workers=3", "--set", "data.engine=spark"]

    words = ["--master", "local[1]", entry, "--out", tmp_path / "out", *settings]
    ended = run(submit, *words, PYSPARK_PYTHON=sys.executable)

    assert ended.returncode == 0, ended.stderr
    assert len(read_manifest(tmp_path / "out").shards) == 3


def test_a_table_has_the_same_hashed_features_as_here(tmp_path):
    rows = "".join(f"{'ab'[n % 2]},town {n % 97},{n},2026-0{1 + n % 9}-01\n" for n in range(300))
    (tmp_path / "a.csv").write_text(f"kind,town,price,since\n{rows}")
    data = {"path": str(tmp_path / "a.csv"), "table": {"label": "kind", "bits": 10}, "shards": 2}

    made = [
        make_shards(Config(task="svm", updates="sparse", data={**data, **engine}), tmp_path / name)
        for name, engine in (("here", {}), ("spark", {"engine": ENGINE}))
    ]
    assert made[0].fingerprint == made[1].fingerprint
    assert made[1].columns.width == 1025
