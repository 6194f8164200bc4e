"""A machine outside the cluster joins a real run whose shards are in a bucket: it reads them with its own credentials."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

pytest.importorskip("moto", reason="moto is not installed: make setup")

from paceline.launch.folder.cluster_key import ClusterKey
from paceline.rpc.tls import AUTHORITY, CERTIFICATE, KEY
from tests.sharder.test_serve_processes import SPARSE, libsvm
from tests.support.object_store import KEYS, NOBODY, object_store
from tests.support.processes import TOKEN, Cluster
from tools.authority import Authority

URL = "s3://mine/run/shards"


@pytest.mark.nightly  # a store, a sharder and three processes; by day test_join_run.py joins without a bucket
def test_a_machine_joins_with_its_own_credentials_and_says_which_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = Authority().write(tmp_path / "keys")
    (tmp_path / "made.svm").write_text(libsvm(400, 30))
    settings = SPARSE | {"servers": 1, "workers": 1, "epochs": 3, "start_timeout": 80, "transport": "grpc"}
    with object_store() as store:
        store.put("mine", {})
        for name, value in {**NOBODY, **KEYS, "AWS_ENDPOINT_URL": store.url}.items():
            monkeypatch.setenv(name, value)
        data = {"shards_at": URL, "path": str(tmp_path / "made.svm"), "validation": 0.15}
        with Cluster(tmp_path / "run", run="demo", data=data, **settings) as run:
            sharder = run.start("sharder", "-m", "paceline.sharder", "--config", run.config)
            assert sharder.wait() == 0, sharder.text()
            run.listening(0, run.server(0, "--tls", keys))
            evaluator = run.evaluator("--tls", keys, "--shards", tmp_path / "evaluator")
            authority, certificate, own = ((keys / name).read_text() for name in (AUTHORITY, CERTIFICATE, KEY))
            key = ClusterKey(
                run="demo",
                servers=tuple(run.addresses),
                token=TOKEN,
                authority=authority,
                certificate=certificate,
                key=own,
                files={"run.yaml": yaml.safe_dump(run.settings)},
            )
            (tmp_path / "demo.key").write_text(key.text())

            code, said = joined(tmp_path, without=("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"))
            assert code == 78, said
            assert "No credentials for the bucket 'mine' of S3" in said
            assert "Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
            code, said = joined(tmp_path)
            assert code == 0, said
            assert "the run is over" in said
            assert evaluator.wait() == 0, evaluator.text()


def joined(folder: Path, without: tuple[str, ...] = ()) -> tuple[int, str]:
    """What `paceline join` ends with on a machine without these variables, and what it shows."""
    environment = {name: value for name, value in os.environ.items() if name not in without}
    command = [sys.executable, "-P", "-m", "paceline.cli", "join", str(folder / "demo.key"), "-w", "1"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    return done.returncode, " ".join((done.stdout + done.stderr).split())
