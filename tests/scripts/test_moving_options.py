"""Schedulers that move more than the rate: momentum and betas travel with each push, as rates do."""

import re
from pathlib import Path

import pytest

from tests.support.commands import paceline

SCRIPT = """
import sys, torch, paceline
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
kind, top = getattr(torch.optim, sys.argv[1]), float(sys.argv[2])
inputs = torch.randn(400, 8)
labels = (inputs[:, 0] + inputs[:, 1] ** 2 > 1).long()


def train(model, optimizer, batches, epochs):
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, top, epochs=4, steps_per_epoch=len(batches))
    for epoch in epochs:
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
    return [*model.parameters(), F.cross_entropy(model(inputs), labels)]


model, plain = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)) for _ in range(2))
plain.load_state_dict(model.state_dict())
optimizer = paceline.wrap(kind(model.parameters(), lr=top / 10), model)
loader = paceline.loader(torch.utils.data.TensorDataset(inputs, labels), batch_size=40, shuffle=False)
ours = train(model, optimizer, loader, paceline.epochs(4))
batches = [*zip(inputs.split(40), labels.split(40))]
torchs = train(plain, kind(plain.parameters(), lr=top / 10), batches, range(4))
if paceline.rank() == 0:
    print("FAR", max((one - other).abs().max().item() for one, other in zip(ours, torchs)))
    print("LOSSES", ours[-1].item(), torchs[-1].item())
"""


@pytest.mark.parametrize(
    ("policy", "servers", "optimizer", "far"),
    [("bsp", 2, ("AdamW", 0.01), 1e-5), ("allreduce", 0, ("SGD", 0.1), 1e-5), ("ssp", 1, ("SGD", 0.1), 0.1)],
)
def test_one_cycle_with_its_defaults_trains_as_plain_torch(
    tmp_path: Path, policy: str, servers: int, optimizer: tuple[str, float], far: float
) -> None:
    """SGD is without momentum until the schedule begins. In lock-step the weights are torch's."""
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 2, "-s", servers, "--policy", policy, "train.py", *optimizer, cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    printed = ended.stdout + ended.stderr
    assert float(re.findall(r"FAR (\S+)", printed)[0]) < far
    ours, torchs = map(float, re.findall(r"LOSSES (\S+) (\S+)", printed)[0])
    assert ours == pytest.approx(torchs, abs=0.05)
