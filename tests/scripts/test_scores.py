"""Scores come from worker 0's own loop, as in plain torch, and from the next worker where it is gone."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from paceline.launch.folder.run_folder import RunFolder
from tests.support.commands import paceline, python

pytest.importorskip("torch")

AVERAGE = """
import os, torch, paceline
from torch.nn import functional
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
x = torch.randn(120, 8)
y = (x.sum(1) > 0).long()
if paceline.rank() == 0:
    os.makedirs("experiment")  # fails the second time
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(.9))
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.3), model)
loader = paceline.loader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))

def score():
    average.eval()
    with torch.no_grad():
        return {"loss": functional.cross_entropy(average(x), y)}

paceline.evaluate(score)
for epoch in paceline.epochs(6):
    for rows, labels in loader:
        optimizer.zero_grad()
        functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
        average.update_parameters(model)
"""

LOST = """
import os, signal, torch, paceline

model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.1), model)
paceline.evaluate(lambda: {"loss": model.weight.detach().square().sum()}, every=5)
for step in paceline.steps(20):
    if step == 7 and paceline.rank() == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    optimizer.zero_grad()
    model(torch.ones(2, 4)).square().mean().backward()
    optimizer.step()
print("worker", paceline.rank(), "has ended")
"""


def scores(run: Path) -> dict[int, dict[str, Any]]:
    """The metrics of each score, by epoch."""
    return {
        score["epoch"]: score["metrics"]
        for score in json.loads(RunFolder(run).metrics.read_text().splitlines()[-1])["scores"]
    }


def test_an_average_of_weights_that_the_loop_keeps_scores_as_in_plain_torch(tmp_path: Path) -> None:
    (tmp_path / "average.py").write_text(AVERAGE)

    alone = python("average.py", cwd=tmp_path)
    (tmp_path / "experiment").rmdir()
    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "--run", "mine", "average.py", cwd=tmp_path)

    assert (alone.returncode, ended.returncode) == (0, 0), alone.stderr + ended.stderr
    plain = [float(loss) for loss in re.findall(r"loss ([0-9.]+)", alone.stdout)]
    launched = [metrics["validation_loss"] for _, metrics in sorted(scores(tmp_path / "runs/mine").items())]
    assert launched == pytest.approx(plain, abs=1e-3)
    assert not (tmp_path / "runs/mine/logs/evaluator.log").exists()


def test_where_worker_0_is_gone_for_good_the_next_worker_scores_and_keeps_the_model(tmp_path: Path) -> None:
    (tmp_path / "lost.py").write_text(LOST)
    settings = [word for each in ("restarts=0", "lease=2", "heartbeat=0.5") for word in ("--set", each)]

    ended = paceline(
        "launch", "-w", "2", "-s", "1", "--policy", "bsp", *settings, "--run", "r", "lost.py", cwd=tmp_path
    )

    assert ended.returncode == 0, ended.stderr
    assert len(scores(tmp_path / "runs/r")) == 4
    log = (tmp_path / "runs/r/logs/worker-1.log").read_text()
    assert '"final": true' in log
    assert "worker 1 has ended" in log
    models = tmp_path / "runs/r/models"
    assert {file.name for file in models.iterdir()} == {"best.safetensors", "last.safetensors"}
