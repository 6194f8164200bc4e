"""What a script does to its weights after the wrap: moving them is served, a change that would be lost is refused."""

import re
from pathlib import Path

import pytest

from paceline.core.errors import ConfigError
from tests.support.commands import paceline, python

torch = pytest.importorskip("torch")
from paceline.worker.script.script_replica import ScriptReplica  # noqa: E402

SCRIPT = """
import sys, torch, paceline
from torch import nn
from torch.nn.functional import cross_entropy

torch.manual_seed(0)
x = torch.randn(60, 3, 4, 4)
y = (x.mean((1, 2, 3)) > 0).long()
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 2)).to(memory_format=torch.channels_last)
for each in model[0].parameters():
    each.requires_grad_(False)
optimizer = paceline.wrap(torch.optim.SGD(model.parameters(), lr=.2), model)
loader = paceline.loader(torch.utils.data.TensorDataset(x, y), batch_size=60, shuffle=False)
queue = torch.multiprocessing.get_context("spawn").SimpleQueue()
for epoch in paceline.epochs(9):
    if epoch == 2:
        for each in model[0].parameters():
            each.requires_grad_(True)
    for a, b in loader:
        optimizer.zero_grad()
        cross_entropy(model(a), b).backward()
        optimizer.step()
    if epoch == 3:
        queue.put(model.state_dict())  # moves the weights to where another process reads them
    if epoch == 4:
        model.share_memory()
    if epoch == 5:
        assert model[0].weight.is_contiguous(memory_format=torch.channels_last), "as before the wrap"
        model.to(memory_format=torch.contiguous_format)
        both = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(both, model.parameters())
    if epoch == 6:
        model.to(memory_format=torch.channels_last)
assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
print("weights", *[value.item() for part in model.parameters() for value in part.detach().flatten()])
"""


def test_weights_that_are_moved_reordered_and_unfrozen_train_as_in_plain_torch(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    alone = python("train.py", cwd=tmp_path)
    ended = paceline("launch", "-w", "2", "-s", "1", "--policy", "bsp", "--run", "r", "train.py", cwd=tmp_path)

    assert (alone.returncode, ended.returncode) == (0, 0), alone.stderr + ended.stderr
    plain, launched = (re.search(r"^weights (.*)$", each.stdout, re.MULTILINE)[1].split() for each in (alone, ended))
    assert list(map(float, launched)) == pytest.approx(list(map(float, plain)), abs=1e-5)
    assert "112 of the 146 weights that the optimizer holds are frozen now" in ended.stdout + ended.stderr


@pytest.mark.parametrize("looks", [0, 5])
def test_a_change_of_weights_that_would_be_lost_is_refused(looks: int) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(30, 30), torch.nn.Linear(30, 2))
    replica = ScriptReplica("train.py", model, [torch.optim.SGD(model.parameters(), lr=0.1)])
    replica.begins()
    for _ in range(looks + 1):
        replica.local += 1  # what comes from the servers is no change
        replica.refresh()
        replica.look()

    with torch.no_grad():
        model[0].weight.clamp_(max=1.0)
        model[1].weight.clamp_(max=1.0)

    with pytest.raises(ConfigError, match=r"changed weights after optimizer.step\(\), those of '0.weight'"):
        replica.look()
    replica.steps_itself = True  # then it is pushed
    model[0].weight.data += 1
    replica.look()
