"""The seed that a launched script gives torch decides the order of its rows, also after a death."""

import json
from pathlib import Path

import pytest

from tests.support.commands import paceline

torch = pytest.importorskip("torch")
FakeRun = pytest.importorskip("tests.support.script_run").FakeRun

SCRIPT = """
import json, os, torch, paceline
from torch.utils.data import TensorDataset

torch.manual_seed(1234)
data = TensorDataset(torch.arange(60))
model = torch.nn.Linear(1, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.01), model)
loader = paceline.loader(data, batch_size=20)
for epoch in paceline.epochs(2):
    for step, (rows,) in enumerate(loader):
        if paceline.rank() == 1 and (epoch, step) == (1, 1) and not os.path.exists("died"):
            open("died", "w").close()
            os._exit(9)
        optimizer.zero_grad()
        model(rows[:, None] / 60).pow(2).mean().backward()
        optimizer.step()
        with open(f"rows-{paceline.rank()}", "a") as file:
            print(json.dumps(rows.tolist()), file=file)
"""


def test_the_order_of_rows_is_by_the_scripts_own_seed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 2, "-s", 1, "--policy", "bsp", "train.py", cwd=tmp_path, patience=120)

    assert ended.returncode == 0, ended.stdout
    assert (tmp_path / "died").exists()
    seen = [[*map(json.loads, (tmp_path / f"rows-{rank}").read_text().splitlines())] for rank in (0, 1)]
    assert sorted(seen) == sorted(order(1234))
    assert sorted(seen) != sorted(order(0))


def order(seed: int) -> list[list[list[int]]]:
    """The mini-batches of both workers of a run with this seed."""
    data = torch.utils.data.TensorDataset(torch.arange(60))
    runs = [FakeRun(rank, workers=2, seed=seed, epochs=2) for rank in (0, 1)]
    return [[rows.tolist() for (rows,) in run.train(run.loader(data, 20))] for run in runs]
