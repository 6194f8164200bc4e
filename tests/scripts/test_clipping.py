"""`paceline.wrap(..., clip_norm=...)` clips the gradient of a step, as clip_grad_norm_ does in one process."""

import re
from pathlib import Path

import pytest

from tests.support.commands import paceline

SCRIPT = """
import torch, paceline
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
inputs = torch.randn(200, 8)
labels = (inputs[:, 0] > 0).long()


def train(model, optimizer, batches, epochs, norm=None):
    for epoch in epochs:
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            if norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), norm)
            optimizer.step()


model, plain = (nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2)) for _ in range(2))
plain.load_state_dict(model.state_dict())
make = lambda model: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
optimizer = paceline.wrap(make(model), model, clip_norm=0.1)
loader = paceline.loader(torch.utils.data.TensorDataset(inputs, labels), batch_size=40, shuffle=False)
train(model, optimizer, loader, paceline.epochs(4))
train(plain, make(plain), [*zip(inputs.split(40), labels.split(40))], range(4), norm=0.1)
if paceline.rank() == 0:
    far = max((one - other).abs().max().item() for one, other in zip(model.parameters(), plain.parameters()))
    print("FAR", far)
"""


@pytest.mark.parametrize(("policy", "servers"), [("bsp", 2), ("allreduce", 0)])
def test_in_lock_step_the_weights_are_those_of_one_process(tmp_path: Path, policy: str, servers: int) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 2, "-s", servers, "--policy", policy, "train.py", cwd=tmp_path)

    assert ended.returncode == 0, ended.stderr
    printed = ended.stdout + ended.stderr
    assert float(re.findall(r"FAR (\S+)", printed)[0]) < 1e-6
    assert printed.count("server 0 holds the whole model") == (servers > 1)
