"""The evaluator of a linear model, against real servers: what it reports, what it writes, and that it needs no torch."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open
from scipy.sparse import csr_array

from paceline.core.errors import ConfigError
from paceline.core.linear.objective import Objective
from paceline.core.settings.config import Config, SvmConfig
from paceline.core.slice.plan import make_plan
from paceline.core.values import Sparse
from paceline.data.dataset import Labelled, Selection
from paceline.data.linear_model import read_linear_model, shapes_of
from paceline.data.manifest import Recipe
from paceline.data.shard_writer import Dealt, write_shards
from paceline.data.shards import Shards, open_shards
from paceline.settings.load_settings import write_yaml
from paceline.v1 import run_service_pb2 as pb
from paceline.worker.linear.linear_worker import SparseClient
from paceline.worker.membership.calls_to_chief import ChiefClient
from paceline.worker.scoring.linear_scorer import LinearScorer
from paceline.worker.surroundings import Surroundings
from tests.support.in_process import Cluster, Context, config_of

D = 40
RECIPE = Recipe(task="tiny", strategy="random", shards=2, validation=0.2, test=0.4, seed=0, examples="a" * 64)
ROWS = [[1, 0], [1, 2], [-1, 0], [0, 3], [-2, 0], [0.5, 0], [-1, -1], [2, 0], [3, 0], [0, -2]]
"""Features 0 and 39 of each example."""
LABELS = [1, 0, 0, 1, 0, 1, 1, 0, 1, 0]
WEIGHTS = np.zeros(D, np.float32)
WEIGHTS[[0, 39]] = 1, 0.5
OBJECTIVE = Objective(lam=0.1)


def config() -> Config:
    return config_of("asp", servers=2, updates="sparse", svm=SvmConfig(objective=OBJECTIVE))


def written(folder: Path, sparse: bool = True) -> Shards:
    """Two shards, a validation part and a test part, of rows 6 to 9."""
    features = np.zeros((10, D), np.float32)
    features[:, [0, 39]] = ROWS
    source = Labelled(csr_array(features) if sparse else features, np.array(LABELS))

    def rows(*which: int) -> Selection:
        return Selection(source, np.array(which))

    write_shards(
        folder, "tiny", RECIPE, Dealt([rows(0, 1), rows(2, 3)]), {"validation": rows(4, 5), "test": rows(6, 7, 8, 9)}
    )
    return open_shards(folder)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two servers of a run that is over but for its score; a worker has pushed WEIGHTS."""
    shards, cluster = written(tmp_path / "shards"), Cluster(config(), tmp_path)
    cluster.evaluator_ready()
    manifest = shards.manifest
    around = Surroundings(config=cluster.config, name="worker-0", addresses=cluster.addresses, patience=60)
    chief = ChiefClient(around)
    plan = make_plan(shapes_of(manifest), 2, cluster.config.plan)
    client = SparseClient(around, plan)
    joined = chief.join(False, manifest.train_examples, 2, manifest.fingerprint, 2)
    client.attach(joined.incarnation)
    client.initialise(np.zeros(D, np.float32))
    seat = chief.seat(joined.incarnation, 0)
    client.pull(np.zeros(D, np.float32))
    places = np.flatnonzero(WEIGHTS)
    client.begin_sparse(1, seat.view, Sparse(places, WEIGHTS[places], D), 4, client.bases)()
    cluster.run.Stop(pb.StopRequest(reason="enough"), Context())
    chief.leave(joined.incarnation, True)
    yield cluster
    cluster.close()


def scored(cluster: Cluster) -> dict[str, float]:
    """What the chief knows of the final score."""
    (score,) = cluster.run.Status(pb.StatusRequest(), Context()).scores
    assert score.final
    return dict(score.metrics)


def check_metrics(metrics: dict[str, float]) -> None:
    """Margins of the test rows are -1.5, 2, 3 and -1, where 1, 0, 1, 0 is right."""
    penalty = 0.1 / 2 * 1.25
    assert metrics["test_accuracy"] == 0.5
    assert metrics["test_precision"] == 0.5
    assert metrics["test_recall"] == 0.5
    assert metrics["test_loss"] == pytest.approx((2.5 + 3 + 0 + 0) / 4 + penalty)
    assert metrics["validation_accuracy"] == 1
    assert metrics["validation_loss"] == pytest.approx((0 + 0.5) / 2 + penalty)
    assert metrics["train_accuracy"] == 0.75
    assert metrics["train_loss"] == pytest.approx((0 + 3 + 0 + 0) / 4 + penalty)


def test_the_final_version_of_all_slices_is_scored_and_written(cluster: Cluster, tmp_path: Path) -> None:
    around = Surroundings(config=cluster.config, name="evaluator", addresses=cluster.addresses)
    LinearScorer(around, open_shards(tmp_path / "shards"), tmp_path / "models").run()

    metrics = scored(cluster)
    check_metrics(metrics)
    names = {"last.safetensors", "last.liblinear", "best.safetensors", "best.liblinear"}
    assert {file.name for file in (tmp_path / "models").iterdir()} == names
    for name in names:
        np.testing.assert_array_equal(read_linear_model(tmp_path / "models" / name).weights, WEIGHTS)
    with safe_open(tmp_path / "models" / "last.safetensors", "numpy") as file:
        facts = file.metadata()
    assert (facts["negative"], facts["positive"], facts["test_accuracy"]) == ("-1", "1", "0.5")


def test_the_evaluators_process_never_imports_torch(cluster: Cluster, tmp_path: Path) -> None:
    write_yaml(cluster.config, tmp_path / "config.yaml")
    command = [sys.executable, "-X", "importtime", "-m", "paceline.worker.evaluator"]
    places = ["--config", tmp_path / "config.yaml", "--shards", tmp_path / "shards", "--models", tmp_path / "models"]
    servers = ["--servers", ",".join(cluster.addresses)]

    done = subprocess.run([*command, *places, *servers], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr[-2000:]
    imported = set(re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE))
    assert "paceline.worker.scoring.linear_scorer" in imported
    assert "torch" not in imported
    check_metrics(scored(cluster))


def test_shards_of_dense_rows_are_refused(tmp_path: Path) -> None:
    shards = written(tmp_path / "shards", sparse=False)

    with pytest.raises(ConfigError, match="task 'tiny' hold dense rows, but updates: sparse"):
        shapes_of(shards.manifest)
