"""paceline.launch(function) with real processes, as from the cells of a notebook."""

import json
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError
from tests.support.commands import python

pytest.importorskip("torch")
SCRIPT = """
import json, os, signal, sys, threading
import torch
from pathlib import Path
from torch.nn import functional
import paceline

x = torch.randn(400, 5, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
lock = threading.Lock()
said = []
small = dict(workers=2, servers=1, policy="bsp", yes=True, show=said.append)

class Net(torch.nn.Sequential):
    def __init__(self):
        super().__init__(torch.nn.Linear(5, 2))

def accuracy(model):
    return {"accuracy": (model(x).argmax(1) == y).float().mean()}

def train(rate, epochs=4):
    model = Net()
    optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=rate), model)
    loader = paceline.loader(torch.utils.data.TensorDataset(x, y), batch_size=40)
    paceline.evaluate(lambda: accuracy(model))
    for epoch in paceline.epochs(epochs):
        if epoch == 2 and paceline.rank() == 1 and not Path("killed").exists():
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        for inputs, targets in loader:
            optimizer.zero_grad()
            functional.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    if paceline.rank() == 0:
        print("trained by", paceline.workers())

def fails():
    raise KeyError("no such column")

def refused(function, *args):
    try:
        paceline.launch(function, args, **small)
    except paceline.extend.ConfigError as error:
        return str(error)

before = len(os.listdir("/proc/self/fd"))
import paceline.extend
first = paceline.launch(train, [0.5], folder="runs/one", **small)
again = paceline.launch(train, [0.5], folder="runs/one", **small)
model = Net()
first.load_into(model)
print(json.dumps({
    "metrics": first.metrics, "again": again.metrics, "own": float(accuracy(model)["accuracy"]), "said": said,
    "fails": refused(fails), "locked": refused(lambda: lock.acquire()),
    "descriptors": len(os.listdir("/proc/self/fd")) - before,
    "left": open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read()}))
"""


def test_a_function_trains_in_several_workers_with_what_other_cells_made(tmp_path: Path) -> None:
    (tmp_path / "cells.py").write_text(SCRIPT)

    done = python("cells.py", cwd=tmp_path)

    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else done.stderr
    assert found["metrics"] == found["again"] == {"validation_accuracy": pytest.approx(found["own"])}
    assert found["own"] > 0.9
    assert "trained by 2" in found["said"]
    assert any("is finished already" in line for line in found["said"])
    assert (tmp_path / "killed").exists(), "a worker was started again"
    assert ", in fails\n" in found["fails"]
    assert found["fails"].endswith("KeyError: 'no such column'")
    assert found["locked"].startswith("the function can't be sent to the run's processes: its lock is a lock")
    assert (found["descriptors"], found["left"]) == (0, "")


def test_what_can_not_be_called_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    launch: Any = paceline.launch
    for function, args, words in (
        ("train.py", [], "paceline launch train.py"),
        (print, 3, "args is of type int"),
        (lambda rate: rate, [], "missing a required argument: 'rate'"),
    ):
        with pytest.raises(ConfigError, match=words):
            launch(function, args)
    monkeypatch.setenv(CONNECT, "{}")
    with pytest.raises(ConfigError, match='Put the call under: if __name__ == "__main__"'):
        launch(print)
