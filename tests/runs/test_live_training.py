"""paceline.train(model, train=dataset) with real processes, from scripts and from the cells of a notebook."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import python
from tests.support.tree import ROOT

torch = pytest.importorskip("torch")
HEAD = """
import json, os, sys, threading, time
import torch
from torch.nn import functional
from torch.utils.data import TensorDataset
import paceline

torch.manual_seed(0)
x = torch.randn(400, 5)
y = (x[:, 0] > 0).long() + (x[:, 1] > 0).long()
small = dict(workers=2, servers=1, policy="bsp", yes=True)

def left():
    "Own children that are still there."
    return open(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read().split()
"""
SCRIPT = (
    HEAD
    + """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(5, 3)
    def forward(self, x):
        return self.inner(x)

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return len(x)
    def __getitem__(self, row):
        return {"x": x[row], "y": y[row]}

weight = torch.ones(3)
def collate(rows):
    return {key: torch.stack([row[key] for row in rows]) for key in rows[0]}

before = len(os.listdir("/proc/self/fd"))
model = Net()
said = []
first = paceline.train(
    model, TensorDataset(x[:300], y[:300]), test=(x[300:], y[300:]), epochs=4, batch_size=20,
    loss=lambda outputs, targets: functional.cross_entropy(outputs, targets, weight=weight),
    optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.5),
    scheduler=lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 4),
    metrics={"ones": lambda outputs, targets: (outputs.argmax(1) == 1).float().mean()}, show=said.append, **small)
with torch.no_grad():
    own = (model(x[300:]).argmax(1) == y[300:]).double().mean()
dicts = Net()
second = paceline.train(
    dicts, Rows(), epochs=40, batch_size=20, collate_fn=collate, show=None, optimizer="adam",
    stopping={"rule": "target", "target": 100.0},
    accumulate=2, precision="bf16", clip={"norm": 1.0}, scheduler_interval="step",
    scheduler=lambda optimizer: torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    batch_loss=lambda net, batch: functional.cross_entropy(net(batch["x"]), batch["y"]), **small)
print(json.dumps({
    "metrics": first.metrics, "own": float(own), "same": bool((first.model.inner.weight == model.inner.weight).all()),
    "versions": second.history[-1].versions,
    "best": type(first.best_model).__name__, "history": len(first.history), "said": said, "second": second.metrics,
    "moved": bool((dicts.inner.weight != Net().inner.weight).any()), "left": left(),
    "descriptors": len(os.listdir("/proc/self/fd")) - before, "threads": threading.active_count()}))
"""
)
CELLS = (
    HEAD + "import linecache\n",
    """
class Fragile:
    def __len__(self):
        return len(x)
    def __getitem__(self, row):
        if row == 111:
            raise KeyError("row 111 has no label")
        return x[row], y[row]
""",
    """
result = paceline.train(torch.nn.Linear(5, 3), Fragile(), test=(x, y), show=None, **small)
""",
)
NOTEBOOK = """
import json, linecache, sys, traceback
for number, cell in enumerate(json.load(open(sys.argv[1])), 1):
    name = f"/tmp/ipykernel_1/{number}.py"
    linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
    exec(compile(cell, name, "exec"), sys.modules["__main__"].__dict__)
"""
KILLS = (
    HEAD
    + """
killed = os.path.abspath("killed")

def trains_first():
    "Whether this is worker 0."
    told = json.loads(os.environ.get("PACELINE_CONNECT", '{"evaluates": true}'))
    return told.get("rank", 0) == 0 and not told.get("evaluates")

class Kills(TensorDataset):
    "Kills worker 0 once, in the midst of its first epoch."
    taken = 0
    def __getitem__(self, row):
        self.taken += 1
        if self.taken == 50 and trains_first():
            try:
                os.close(os.open(killed, os.O_CREAT | os.O_EXCL))
                os.kill(os.getpid(), 9)
            except FileExistsError:
                pass
        return super().__getitem__(row)

said = []
result = paceline.train(torch.nn.Linear(5, 3), Kills(x, y), test=(x, y), epochs=3, folder="runs/one", show=said.append, **small)
from paceline.extend import ConfigError
told = []
again = dict(test=(x, y), folder="runs/one", show=told.append, **small)
same = paceline.train(torch.nn.Linear(5, 3), Kills(x, y), epochs=3, **again)
try:
    paceline.train(torch.nn.Linear(5, 3), Kills(x, y), epochs=4, **again)
except ConfigError as error:
    told.append(str(error))
print(json.dumps({
    "metrics": result.metrics, "said": said, "left": left(), "again": same.metrics, "told": told}))
"""
)


def written(text: str, folder: Path) -> Path:
    script = folder / "script.py"
    script.write_text(text)
    return script


def told(text: str, folder: Path) -> Any:
    """What the script's last line holds."""
    done = python(written(text, folder), cwd=folder, patience=240)
    assert done.stdout, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_script_trains_its_own_classes_lambdas_and_dict_batches_and_leaves_nothing_behind(tmp_path: Path) -> None:
    found = told(SCRIPT, tmp_path)
    assert found["metrics"]["test_accuracy"] > 0.7
    assert found["own"] == pytest.approx(found["metrics"]["test_accuracy"])
    assert found["same"]
    assert found["best"] == "Net"
    assert found["history"] >= 1
    assert 0 <= found["metrics"]["test_ones"] <= 1
    assert found["second"].keys() == {f"{split}_loss" for split in ("train", "validation", "test")}
    assert found["moved"]
    assert (
        14 <= found["versions"][0] < 40 * 14
    )  # steps of 20 examples, in two parts each, from 280, until it is stopped
    assert (found["left"], found["descriptors"], found["threads"]) == ([], 0, 1)


def test_a_mistake_in_a_cells_class_is_shown_with_the_cells_own_line(tmp_path: Path) -> None:
    cells = tmp_path / "cells.json"
    cells.write_text(json.dumps(CELLS))
    error = python(written(NOTEBOOK, tmp_path), cells, cwd=tmp_path, patience=240).stderr
    assert "ConfigError: KeyError: 'row 111 has no label'" in error
    assert 'raise KeyError("row 111 has no label")' in error.rpartition("ConfigError")[2]
    assert "starting it again" not in error


def test_a_killed_worker_gets_its_objects_again(tmp_path: Path) -> None:
    found = told(KILLS, tmp_path)
    assert any("worker-0 was killed" in line and "starting it again" in line for line in found["said"])
    assert found["metrics"]["test_loss"] > 0
    assert found["left"] == []
    assert found["again"] == found["metrics"]
    finished, refused = found["told"]
    assert finished.startswith("run one in runs/one is finished already: nothing was trained")
    assert "The run in runs/one is finished, and had other settings: epochs: 3 before, 4 now" in refused


@pytest.mark.nightly  # an example; by day the scripts of this file
def test_the_example_trains_and_its_model_has_the_weights(tmp_path: Path) -> None:
    done = python(ROOT / "examples" / "train_live.py", "2", cwd=tmp_path, patience=240)
    assert "nobody trains on these" in done.stdout, done.stderr
    assert float(done.stdout.splitlines()[-1].split()[2].rstrip(";")) > 0.8


PEERS = (
    HEAD
    + """
model = torch.nn.Linear(5, 3)
result = paceline.train(model, (x, y), test=(x, y), epochs=3, show=None, optimizer={"name": "sgd", "lr": 0.3},
                        **{**small, "servers": 0, "policy": "allreduce"})
print(json.dumps({"first": float(functional.cross_entropy(torch.nn.Linear(5, 3)(x), y)), "metrics": result.metrics,
                  "own": float(functional.cross_entropy(model(x), y))}))
"""
)


def test_without_servers_the_mean_of_the_workers_models_is_scored_and_comes_back(tmp_path: Path) -> None:
    found = told(PEERS, tmp_path)
    assert found["metrics"]["test_loss"] < 0.8 < found["first"]
    assert found["own"] == pytest.approx(found["metrics"]["test_loss"], rel=1e-4)
