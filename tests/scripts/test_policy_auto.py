"""A script under policy auto: lock-step's bits while nothing is wrong, and no waiting for a worker that is slow for good."""

from pathlib import Path

import pytest

from tests.support.commands import paceline

pytest.importorskip("torch")

SCRIPT = """
import sys, torch, paceline
torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(160, 8), torch.randn(160, 1))
model = torch.nn.Linear(8, 1)
optimizer = paceline.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
loader, steps = paceline.loader(data, batch_size=16, shuffle=True), 0
for epoch in paceline.epochs(int(sys.argv[1])):
    for batch, target in loader:
        optimizer.zero_grad()
        (model(batch) - target).square().mean().backward()
        optimizer.step()
        steps += 1
if paceline.rank() == 0:
    print(steps, "steps", model.weight.double().sum().item())
"""


def test_a_run_that_nothing_disturbs_makes_the_steps_of_lock_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    ends = [
        next(line for line in launched(tmp_path, policy, "1").splitlines() if "steps" in line)
        for policy in ("auto", "bsp")
    ]

    assert ends[0] == ends[1]
    assert ends[0].startswith("10 steps")


def test_a_fast_worker_takes_over_once_the_policy_has_changed_because_of_a_slow_one(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    out = launched(tmp_path, "auto", "20", "--slow", "1=10x")

    assert "policy auto: to kbuffered: worker-1" in out
    assert "the budget of epochs is spent" in out


def launched(folder: Path, policy: str, epochs: str, *options: str) -> str:
    """What a launch by two workers prints."""
    run = paceline("launch", "-w", "2", "-s", "1", "--policy", policy, *options, "train.py", epochs, cwd=folder)
    assert run.returncode == 0, run.stderr
    return run.stdout
