"""A loss that grows for good reasons: it is shown and warned of, and sends no run back."""

from pathlib import Path

import pytest

from tests.support.commands import paceline

pytest.importorskip("torch")

SCRIPT = """
import torch, paceline
from torch.utils.data import TensorDataset

torch.manual_seed(0)
inputs = torch.randn(640, 4)
data = TensorDataset(inputs, inputs @ torch.randn(4, 1))
model = torch.nn.Linear(4, 1)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.1), model)
loader = paceline.loader(data, batch_size=16)
step = 0
for epoch in paceline.epochs(2):
    for inputs, targets in loader:
        def closure():
            optimizer.zero_grad()
            error = torch.nn.functional.mse_loss(model(inputs), targets)
            (error + step ** 4).backward()
            return error + step ** 4
        step += 1
        optimizer.step(closure)
print("error", torch.nn.functional.mse_loss(model(data[:][0]), data[:][1]).item())
"""


def test_the_loss_of_a_closure_may_grow(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 1, "-s", 1, "train.py", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert "worker-0: training explodes: its loss rose from" in ended.stdout
    assert "went back" not in ended.stdout
    assert float(ended.stdout.split("error ")[1].split()[0]) < 1e-3
