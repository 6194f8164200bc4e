"""A script's processes as pods start them: each by itself, in any order, told by PACELINE_CONNECT and the run's settings."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError
from tests.support.processes import QUIET, TORCH, Cluster, Process, forker_of

pytest.importorskip("torch")
SCRIPT = """
import sys
import torch
import paceline
import beside

torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=float(sys.argv[1])), model)
for step in paceline.steps(beside.STEPS):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
"""


def started(cluster: Cluster, name: str, **told: Any) -> Process:
    """A pod's process."""
    whereabouts = {
        "config": str(cluster.config),
        "servers": ",".join(cluster.addresses),
        "token_file": str(cluster.token),
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
    environment = inherited | QUIET | {CONNECT: json.dumps(whereabouts | told)}
    process = Process(name, ["-m", "paceline.worker.script"], cluster.folder, environment, forker_of(TORCH))
    cluster.processes.append(process)
    return process


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "beside.py").write_text("STEPS = 30\n")
    file = tmp_path / "own" / "train.py"
    file.write_text(SCRIPT)
    return file


def test_pods_train_a_script_and_an_evaluator_keeps_the_final_model_that_nobody_scores(tmp_path: Path, script: Path):
    with Cluster(tmp_path / "run", workers=1, servers=1) as cluster:
        given = {"task": str(script), "arguments": ["0.1"], "data": {"source": "script"}, "policy": "bsp"}
        cluster.config.write_text(yaml.safe_dump({"workers": 1, "servers": 1, **given}))
        (server,) = cluster.servers()
        evaluator = started(cluster, "evaluator", evaluates=True, models=str(tmp_path / "models"))
        worker = started(cluster, "worker-0", rank=0)

        assert worker.wait() == 0, worker.text()
        assert evaluator.wait() == 0, evaluator.text()
        assert [path.name for path in (tmp_path / "models").iterdir()] == ["last.safetensors"]
        server.wait_for("finished; the weights are on disk, idling")


def test_a_script_that_is_not_in_the_pod_is_named(tmp_path: Path):
    with Cluster(tmp_path / "run", workers=1, servers=1) as cluster:
        given = {"task": "/script/none.py", "data": {"source": "script"}}
        cluster.config.write_text(yaml.safe_dump({"workers": 1, "servers": 1, **given}))
        cluster.addresses = ["127.0.0.1:1"]
        worker = started(cluster, "worker-0", rank=0)

        assert worker.wait() == 78
        assert "There is no script /script/none.py here." in worker.text()


def test_an_image_without_torch_says_that_a_script_needs_another_one():
    hidden = (
        "import runpy, sys; sys.modules['torch'] = None; runpy.run_module('paceline.worker.script', None, '__main__')"
    )

    ended = subprocess.run([sys.executable, "-c", hidden], capture_output=True, text=True, check=False)

    assert ended.returncode == ConfigError.exit_code
    assert "A training script needs torch" in ended.stderr
    assert "the image paceline-worker has it" in ended.stderr
