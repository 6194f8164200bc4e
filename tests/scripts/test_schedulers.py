"""Schedulers that wait for scores, and those that are not torch's, continue in a worker that is started again, and in a run."""

from pathlib import Path

import pytest

from tests.support.commands import paceline, python

pytest.importorskip("torch")

SCRIPT = """
import json, os, signal, sys, time, torch, paceline
from functools import partial
from pathlib import Path

SCORES = [5, 4, 4, 4, 3, 3, 3, 2, 2, 2]


class Timm:
    "As one of timm: its steps take the epoch and a score, and it knows its rate itself."

    def __init__(self, optimizer):
        self.optimizer, self.best, self.bad, self.rate = optimizer, float("inf"), 0, optimizer.param_groups[0]["lr"]

    def step(self, epoch, metric):
        self.best, self.bad = min(metric, self.best), (metric >= self.best) * (self.bad + 1)
        self.rate /= 1 + (self.bad > 0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate

    def state_dict(self):
        return {key: value for key, value in vars(self).items() if key != "optimizer"}

    def load_state_dict(self, state):
        vars(self).update(state)


def once(name):
    try:  # both workers may come here at the same time, and a second Ctrl-C ends the run without a last snapshot
        Path(name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


model = torch.nn.Linear(4, 1)
plain = torch.optim.SGD(model.parameters(), lr=0.1)
made = {"timm": Timm, "plateau": partial(torch.optim.lr_scheduler.ReduceLROnPlateau, factor=0.5, patience=0)}
scheduler = made[sys.argv[1]](plain)
optimizer = paceline.wrap(plain, model, schedulers=[scheduler][: sys.argv[1] == "timm"])
loader = paceline.loader([torch.ones(4)] * 16, batch_size=8)
for epoch in paceline.epochs(len(SCORES)):
    if epoch == 3 and paceline.rank() == 1 and once("killed"):
        os.kill(os.getpid(), signal.SIGKILL)
    if epoch == 6 and paceline.workers() > 1 and once("stopped"):
        os.kill(json.loads(Path("runs/r/run.json").read_text())["launcher"], signal.SIGINT)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        with open(f"rates-{paceline.workers()}", "a") as file:
            print(epoch, optimizer.param_groups[0]["lr"], file=file)
    scheduler.step(*[epoch, SCORES[epoch]][sys.argv[1] != "timm" :])
"""


@pytest.mark.parametrize("kind", ["plateau", "timm"])
def test_a_scheduler_of_scores_has_the_rates_of_plain_torch_after_a_death_and_in_a_resumed_run(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    launch = ("launch", "-w", "2", "-s", "1", "--policy", "bsp", "--run", "r", "train.py", kind)

    alone = python("train.py", kind, cwd=tmp_path)
    stopped, ended = paceline(*launch, cwd=tmp_path), paceline(*launch, cwd=tmp_path)

    assert (alone.returncode, ended.returncode) == (0, 0), alone.stderr + ended.stderr
    assert stopped.returncode not in (0, 1), stopped.stderr
    assert (tmp_path / "killed").exists(), "a worker has died"
    plain, ours = ((tmp_path / f"rates-{workers}").read_text().splitlines() for workers in (1, 2))
    assert set(ours) == set(plain), "each epoch has its rate, in both workers"
    assert len(set(plain)) == 10
