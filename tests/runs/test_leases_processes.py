"""Real runs whose model counts how often each example is in it, with workers and servers that are killed."""

import random
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="workers need torch")

from safetensors.numpy import load_file

from tests.support.commands import paceline
from tests.support.nights import some

EXAMPLES, EPOCHS = 256, 24
COUNTS = f"""
import time

import numpy as np
import torch
from torch import nn


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.counts = nn.Parameter(torch.zeros({EXAMPLES}))

    def forward(self, numbers):
        time.sleep(0.004)
        return self.counts[numbers[:, 0].long()]
"""
TASK = f"""{COUNTS}
def data(path):
    from paceline.extend import Dataset, Labelled

    numbers = np.arange({EXAMPLES})
    return Dataset(train=Labelled(numbers[:, None], numbers % 2))


def model():
    return Counts()


def prepare(features, labels, rng):
    return torch.as_tensor(features), torch.as_tensor(labels)


def loss(model, inputs, labels):
    return -model(inputs).sum()


def metrics(outputs, labels):
    return {{"seen": float(outputs.mean())}}
"""
SCRIPT = f"""{COUNTS}
from torch.utils.data import TensorDataset

import paceline

model = Counts()
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=1.0), model)
loader = paceline.loader(TensorDataset(torch.arange({EXAMPLES})[:, None]), batch_size=16, num_workers=WORKERS)
for epoch in paceline.epochs({EPOCHS}):
    for (numbers,) in loader:
        optimizer.zero_grad()
        (-model(numbers).sum()).backward()
        optimizer.step()
"""
PLAIN = {
    "optimizer": "{name: sgd, lr: 1, momentum: 0, weight_decay: 0}",
    "schedule.lr_scale": "none",
    "batch_size": 16,
    "epochs": EPOCHS,
    "data.validation": 0,
    "data.test": 0,
    "heartbeat": 0.5,
    "lease": 3,
}
"""Each example of a push adds 1 to its count."""


def counted(folder: Path, *words: object, **settings: object) -> np.ndarray:
    """How often each example is in the model of a run of four workers (examples,)."""
    chosen = [f"--set={key}={value}" for key, value in {**PLAIN, **settings}.items()]
    done = paceline(*words[:1], "--run", "run", "-w", 4, *chosen, *words[1:], cwd=folder, patience=120)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    (weights,) = load_file(folder / "runs" / "run" / "models" / "last.safetensors").values()
    return weights.ravel()


def kills(seed: int) -> list[str]:
    """One to three of the processes die in the first seconds; a worker that has no restart left stays away."""
    draw = random.Random(seed)
    names = draw.sample(["worker-0", "worker-1", "worker-2", "worker-3", "server-0", "server-1"], draw.randint(1, 3))
    return [f"--fault=kill {name}@{draw.uniform(0.2, 1.5):.2f}s" for name in names]


@pytest.mark.parametrize("seed", some(range(100), by_day=[3]))
def test_each_example_is_in_the_model_once_an_epoch_whoever_dies(tmp_path: Path, seed: int) -> None:
    (tmp_path / "counts.py").write_text(TASK)
    policy = random.Random(-seed).choice(("asp", "ssp:4", "asp"))
    restarts = int(any("server" in fault for fault in kills(seed)))

    found = counted(tmp_path, "run", "./counts.py", "-s", 2, *kills(seed), policy=policy, restarts=restarts)

    assert set(found.tolist()) == {EPOCHS}


@pytest.mark.parametrize("loader", some([0, 2], by_day=[0]))
def test_a_script_takes_over_what_a_worker_that_has_died_has_not_done(tmp_path: Path, loader: int) -> None:
    (tmp_path / "script.py").write_text(SCRIPT.replace("WORKERS", str(loader)))
    kill = "--fault=kill worker-2@0.8s"

    found = counted(tmp_path, "launch", "-s", 1, kill, "script.py", policy="asp", restarts=0)

    assert set(found.tolist()) == {EPOCHS}


def test_without_leases_a_run_says_what_a_worker_has_taken_along(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(TASK)
    kill, more = "--fault=kill worker-2@0.3s", {"policy": "asp", "restarts": 0, "data.leases": "false"}

    found = counted(tmp_path, "run", "./counts.py", "-s", 1, kill, **more)

    assert len(set(found.tolist())) > 1
    assert "nobody has trained the rest of worker-2's" in (tmp_path / "runs" / "run" / "run.json").read_text()
