"""Sparse gradients of a script."""

from pathlib import Path

import pytest

from tests.support.commands import paceline

torch = pytest.importorskip("torch")
SCRIPT = """
import torch, paceline
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
words = torch.randint(0, 50, (120, 5))
labels = words.sum(1) % 2


def train(model, optimizer, batches, epochs):
    for epoch in epochs:
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


model, plain = (nn.Sequential(nn.EmbeddingBag(50, 8, sparse=True), nn.Linear(8, 2)) for _ in range(2))
plain.load_state_dict(model.state_dict())
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.1), model)
train(model, optimizer, paceline.loader(torch.utils.data.TensorDataset(words, labels), batch_size=120), paceline.epochs(3))
train(plain, torch.optim.SGD(plain.parameters(), lr=.1), [(words, labels)], range(3))
if paceline.rank() == 0:
    print("FAR", max((one - other).abs().max().item() for one, other in zip(model.parameters(), plain.parameters())))
"""


def test_sparse_gradients_train_as_in_one_process_and_say_what_they_cost(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "train.py", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    said = ended.stdout + ended.stderr
    assert float(said.split("FAR ")[1].split()[0]) < 1e-6
    assert "sparse gradients are sent whole: 400 values in each push" in said
