"""A GAN as Lightning's users have it, with two optimizers, the best checkpoint kept, and an early end."""

import re
from pathlib import Path

import pytest

from tests.support.commands import paceline

pytest.importorskip("lightning", reason="pip install 'paceline[lightning]'")

SCRIPT = """
import lightning, torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from paceline.lightning import PacelineStrategy
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits as bce
from torch.utils.data import DataLoader, TensorDataset

lightning.seed_everything(0)
data = TensorDataset(torch.randn(40, 2), torch.randn(40, 4))


class Gan(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.automatic_optimization = False
        self.generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        self.critic = nn.Sequential(nn.Linear(2, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))

    def training_step(self, batch, _):
        (real, noise), (first, second) = batch, self.optimizers()
        ones, zeros = torch.ones(len(real), 1), torch.zeros(len(real), 1)
        self.toggle_optimizer(first)
        self.manual_backward(bce(self.critic(self.generator(noise)), ones))
        first.step()
        first.zero_grad()
        self.untoggle_optimizer(first)
        self.toggle_optimizer(second)
        made = self.generator(noise).detach()
        self.manual_backward(bce(self.critic(real), ones) + bce(self.critic(made), zeros))
        second.step()
        second.zero_grad()
        self.untoggle_optimizer(second)

    def on_train_epoch_end(self):
        for schedule in self.lr_schedulers():
            schedule.step()

    def validation_step(self, batch, _):
        self.log("far", (self.generator(batch[1]).mean(0) - batch[0].mean(0)).norm())
        self.log("epoch", float(self.current_epoch))

    def configure_optimizers(self):
        first = torch.optim.Adam(self.generator.parameters(), lr=0.02, betas=(0.5, 0.99))
        second = torch.optim.Adam(self.critic.parameters(), lr=0.01)
        return [first, second], [torch.optim.lr_scheduler.StepLR(one, 2, 0.5) for one in (first, second)]


def train(folder, **options):
    best, rule = ModelCheckpoint(folder, monitor="far", mode="max"), EarlyStopping("epoch", mode="min", patience=4)
    trainer = lightning.Trainer(
        max_epochs=9, accelerator="cpu", logger=False, callbacks=[best, rule], enable_progress_bar=False, **options
    )
    trainer.fit(Gan(), DataLoader(data, batch_size=40, shuffle=True), DataLoader(data, batch_size=40))
    return trainer, best


trainer, best = train("launched", strategy=PacelineStrategy())
if trainer.is_global_zero:
    plain, expected = train("plain")
    weights = [torch.load(one.best_model_path)["state_dict"].values() for one in (best, expected)]
    print("FAR", max((one - other).abs().max().item() for one, other in zip(*weights)))
    print("STEPS", trainer.global_step, plain.global_step)
    print("RATES", *(one.optimizers[1].param_groups[0]["lr"] for one in (trainer, plain)))
"""


def test_a_gan_keeps_the_checkpoint_and_ends_where_the_plain_trainer_does(tmp_path: Path) -> None:
    (tmp_path / "gan.py").write_text(SCRIPT)

    ended = paceline("launch", "-w", 2, "-s", 1, "--policy", "bsp", "gan.py", cwd=tmp_path)

    assert ended.returncode == 0, ended.stdout + ended.stderr
    printed = dict(re.findall(r"^(FAR|STEPS|RATES) (.*)", ended.stdout + ended.stderr, re.M))
    assert float(printed["FAR"]) < 1e-6
    assert printed["STEPS"] == "10 10"
    assert printed["RATES"] == "0.0025 0.0025"
    assert "the Trainer of worker 0 has stopped" in ended.stdout + ended.stderr
