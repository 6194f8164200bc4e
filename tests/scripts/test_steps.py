"""A mini-batch may have several steps, of several optimizers: as in plain torch, also where a worker dies in between."""

import re
from pathlib import Path

import pytest

from tests.support.commands import paceline, python

pytest.importorskip("torch")

GAN = """
import os, signal, torch, paceline
from pathlib import Path
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as entropy

torch.manual_seed(0)
real, noise = torch.randn(40, 2) + 2, torch.randn(40, 4)

class Generator(nn.Sequential): pass
class Critic(nn.Sequential): pass

made = Generator(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
critic = Critic(nn.Linear(2, 8), nn.LeakyReLU(.2), nn.Linear(8, 1))
judges = paceline.wrap(torch.optim.Adam(critic.parameters(), lr=.01, betas=(.5, .9)), critic)
makes = paceline.wrap(torch.optim.Adam(made.parameters(), lr=.002, betas=(.5, .99)), made)
decay = torch.optim.lr_scheduler.StepLR(judges, 3, .5)
loader = paceline.loader(torch.utils.data.TensorDataset(real, noise), batch_size=40, shuffle=False)  # all of it
for epoch in paceline.epochs(8):
    if epoch == 5 and paceline.rank() == 1 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    for x, z in loader:
        judges.zero_grad()
        (entropy(critic(x), torch.ones(len(x), 1)) + entropy(critic(made(z).detach()), torch.zeros(len(x), 1))).backward()
        judges.step()
        makes.zero_grad()
        entropy(critic(made(z)), torch.ones(len(x), 1)).backward()
        makes.step()
    decay.step()
print("weights", *[value.item() for each in (made, critic) for part in each.parameters() for value in part.detach().flatten()])
"""

UPDATES = """
import torch, paceline
from torch import nn

torch.manual_seed(0)
shared = nn.ModuleDict({"actor": nn.Linear(3, 2), "critic": nn.Linear(3, 1)})
acts = paceline.wrap(torch.optim.SGD(shared["actor"].parameters(), lr=.1), shared)
judges = paceline.wrap(torch.optim.SGD(shared["critic"].parameters(), lr=.05, momentum=.9), shared)
x = torch.linspace(-1, 1, 24).reshape(8, 3)
for update in paceline.steps(6):
    for repeat in range(2 + update % 2):  # as PPO's that end early
        values = shared["critic"](x)
        judges.zero_grad()
        (values - x.sum(1, keepdim=True)).square().mean().backward()
        judges.step()
        acts.zero_grad()
        (shared["actor"](x).log_softmax(1)[:, 0] * values.detach().squeeze()).mean().backward()
        acts.step()
    done = update
print("updates", done + 1)
print("weights", *[value.item() for part in shared.parameters() for value in part.detach().flatten()])
"""


def weights(printed: str) -> list[float]:
    found = re.search(r"^weights (.*)$", printed, re.MULTILINE)
    assert found is not None, printed
    return [float(each) for each in found[1].split()]


@pytest.mark.parametrize(("script", "policy"), [(GAN, "bsp"), (UPDATES, "bsp"), (UPDATES, "ssp")])
def test_several_steps_and_optimizers_train_as_plain_torch(tmp_path: Path, script: str, policy: str) -> None:
    (tmp_path / "train.py").write_text(script)

    alone = python("train.py", cwd=tmp_path)
    ended = paceline("launch", "-w", "2", "-s", "2", "--policy", policy, "--run", "r", "train.py", cwd=tmp_path)

    assert (alone.returncode, ended.returncode) == (0, 0), alone.stderr + ended.stderr
    assert "updates 6" in alone.stdout or "updates" not in script
    assert ended.stdout.count("updates 6") == alone.stdout.count("updates 6"), "all of them, and not one for each step"
    far = 1e-5 if policy == "bsp" else 0.2  # by stale gradients
    assert weights(ended.stdout) == pytest.approx(weights(alone.stdout), abs=far)
    assert (script == GAN) == (tmp_path / "died").exists()
