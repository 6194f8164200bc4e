"""A column of time stamps in a script's own tensors is named before its first step, and in all advice after that."""

import json
from pathlib import Path

import pytest

from tests.support.commands import paceline

pytest.importorskip("torch")

SCRIPT = """
import torch, paceline

torch.manual_seed(0)
inputs = torch.randn(640, 4)
targets = inputs.sum(1, keepdim=True)
inputs[:, 2] = 1.7e9
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.1), model)
loader = paceline.loader(torch.utils.data.TensorDataset(inputs, targets), batch_size=16)
for epoch in paceline.epochs(2):
    for inputs, targets in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
"""


def test_a_script_with_time_stamps_is_told_to_scale_their_column_and_no_rate(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 1, "-s", 1, "--run", "r", "train.py", cwd=tmp_path)

    named = "inputs[:, 2] (up to 1.7e+09)"
    assert f"paceline: large numbers: {named}; a network learns from about -1 to 1" in ended.stdout
    warnings = json.loads((tmp_path / "runs/r/run.json").read_text())["warnings"]
    assert warnings
    assert {each["advice"] for each in warnings} == {f"inputs of about -1 to 1: scale or leave out {named}"}
    assert "optimizer.lr=" not in ended.stdout
