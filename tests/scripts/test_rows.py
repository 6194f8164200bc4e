"""Which rows a launched script trains on: what a sampler draws, at the script's rate, and a row that can't be read."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from tests.support.commands import paceline, python

torch = pytest.importorskip("torch")
draws = pytest.importorskip("paceline.worker.script.draws")

WEIGHTED = """
import json, os, torch, paceline
from torch.utils.data import DataLoader, TensorDataset, WeightedRandomSampler

data = TensorDataset(torch.randn(200, 4), torch.arange(200))
sampler = WeightedRandomSampler([1.0] * 180 + [9.0] * 20, 120)
model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.01), model)
loader = paceline.loader(DataLoader(data, batch_size=20, sampler=sampler))
for epoch in paceline.epochs(3):
    for step, (inputs, rows) in enumerate(loader):
        first = not os.path.exists("died")
        if paceline.rank() == 1 and (epoch, step) == (1, 2) and first:
            open("died", "w").close()
            os._exit(9)
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
        with open(f"rows-{paceline.rank()}", "a") as file:
            print(json.dumps([epoch, rows.tolist()]), file=file)
"""
SAMPLED = """
import torch, paceline
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
inputs = torch.randn(96, 4)
data = TensorDataset(inputs, inputs @ torch.randn(4, 1))
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=.05, momentum=.9, weight_decay=.01)
optimizer = paceline.wrap(optimizer, model)
loader = DataLoader(data, batch_size=32 // paceline.workers(), sampler=paceline.sampler(data, shuffle=False))
for epoch in paceline.epochs(3):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
if paceline.rank() == 0:
    print("weights", model.weight.tolist()[0])
"""
DAMAGED = """
import torch, paceline

class Pictures(torch.utils.data.Dataset):
    def __len__(self):
        return 100

    def __getitem__(self, row):
        if row == 57:
            raise ValueError("picture 57 is damaged")
        return torch.randn(4)

model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.01), model)
loader = paceline.loader(Pictures(), batch_size=10, shuffle=False)
for epoch in paceline.epochs(2):
    for inputs in loader:
        optimizer.zero_grad()
        model(inputs).pow(2).mean().backward()
        optimizer.step()
"""


def test_the_workers_share_what_a_weighted_sampler_draws_also_after_a_death(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WEIGHTED)

    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "train.py", cwd=tmp_path, patience=120)

    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "died").exists()
    drawn = draws.SampledRows(torch.utils.data.WeightedRandomSampler([1.0] * 180 + [9.0] * 20, 120), 0)
    seen = [Counter[int]() for _ in range(3)]
    for rank in (0, 1):
        for epoch, rows in map(json.loads, (tmp_path / f"rows-{rank}").read_text().splitlines()):
            seen[epoch].update(rows)
    assert seen == [Counter(drawn.of(epoch).tolist()) for epoch in range(3)]


def test_a_sampler_of_ours_trains_as_one_process_with_all_workers_rows(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SAMPLED)

    alone = python("train.py", cwd=tmp_path)
    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "train.py", cwd=tmp_path, patience=120)

    assert ended.returncode == 0, ended.stderr
    ours, plain = (json.loads(re.search(r"weights (.*)", text).group(1)) for text in (ended.stdout, alone.stdout))
    assert ours == pytest.approx(plain, abs=1e-6)


def test_a_row_that_can_not_be_read_ends_the_run_with_its_error_and_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(DAMAGED)

    options = ["-w", "2", "-s", "1", "--policy", "bsp", "--set", "restarts=1"]
    ended = paceline("launch", *options, "train.py", cwd=tmp_path, patience=120)

    assert ended.returncode == ConfigError.exit_code
    assert "ValueError: picture 57 is damaged" in ended.stdout
    assert 'File "train.py", line 10, in __getitem__' in ended.stdout
