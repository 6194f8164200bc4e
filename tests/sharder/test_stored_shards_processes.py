"""Whole runs whose shards stay in a bucket of a real S3 server, and what their processes end with where it can't be used."""

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("moto", reason="moto is not installed: make setup")

from paceline.data.progress import SILENT
from paceline.data.shards import open_shards
from paceline.rpc.enums import phase_of
from paceline.sharder.sharding import make_shards, placed
from paceline.tasks.task import load_config
from tests.sharder.test_serve_processes import SPARSE, copied, libsvm
from tests.support.commands import paceline
from tests.support.object_store import ObjectStore, object_store
from tests.support.processes import Cluster

URL = "s3://mine/run/shards"
DATA = {"shards_at": URL, "path": "made.svm", "validation": 0.15}


@pytest.fixture(scope="module")
def store() -> Iterator[ObjectStore]:
    with object_store() as found:
        found.put("mine", {})
        yield found


@pytest.fixture(autouse=True)
def variables(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of all that is started."""
    store.set_variables(monkeypatch)


def test_workers_and_evaluator_fetch_their_shards_from_a_bucket_and_a_killed_worker_finds_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "made.svm").write_text(libsvm(400, 30))
    with Cluster(tmp_path, data=DATA, **SPARSE | {"epochs": 100_000, "slow": {"all": "3x"}}) as cluster:

        def own(name: str) -> list[Any]:
            return ["--shards", tmp_path / name]

        sharder = cluster.start("sharder", "-m", "paceline.sharder", "--config", cluster.config)
        assert sharder.wait() == 0, sharder.text()
        cluster.servers()
        evaluator = cluster.evaluator(*own("evaluator"))
        steady, killed = (cluster.worker(rank, *own(f"w{rank}"), torch=True) for rank in (0, 1))
        killed.wait_for("training")
        killed.send(signal.SIGKILL)
        back = cluster.worker(1, *own("w1"), torch=True)
        back.wait_for("training")
        cluster.until(lambda status: status.examples >= 30 * status.budget / 100_000)  # 30 epochs
        cluster.stop()
        assert [process.wait() for process in (steady, back, evaluator)] == [0, 0, 0]
        status = cluster.until(lambda status: phase_of(status) == "finished")
        cluster.end_servers(0)

    assert status.scores[-1].metrics["test_accuracy"] > 0.8
    fetched = [[event["what"] for event in process.events("fetched")] for process in (steady, killed, back)]
    assert sorted(fetched) == [[], ["shard-0"], ["shard-1"]]
    assert fetched[2] == [], "it has found its copy"
    assert [copied(cluster, name) for name in ("w0", "w1")] == [[".ids", *names] for names in fetched[:2]]
    assert copied(cluster, "evaluator") == ["test", "validation"]
    assert not cluster.shards.exists()


@pytest.mark.nightly  # by day the processes of a run fetch them
def test_a_run_on_one_machine_takes_shards_from_a_bucket(store: ObjectStore, tmp_path: Path) -> None:
    url = f"{URL}-2"
    (tmp_path / "made.svm").write_text(libsvm(400, 30))
    data = {"path": str(tmp_path / "made.svm"), "validation": 0.15, "shards_at": url}
    settings = {"task": "svm", "run": "mine", "workers": 2, "servers": 1, "epochs": 3, "data": data}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(settings))
    config = load_config(tmp_path / "run.yaml")
    with placed(url, config, SILENT) as place:
        made = make_shards(config, place.folder, store=place.store)

    done = paceline("run", "run.yaml", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert f"fetching the shards from {url}, and checking the task" in done.stdout
    assert (tmp_path / "runs/mine/models/last.safetensors").is_file()
    assert open_shards(tmp_path / "runs/mine/shards").manifest == made
