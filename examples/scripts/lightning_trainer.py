"""Handwritten digits with Lightning: a module, a Trainer, the best checkpoint kept."""

import argparse

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset, random_split

from paceline.lightning import PacelineStrategy


class Digits(lightning.LightningModule):
    def __init__(self, lr: float = 3e-3) -> None:
        super().__init__()
        self.lr = lr
        self.layers = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 10))

    def training_step(self, batch: tuple[Tensor, Tensor], _index: int) -> Tensor:
        pixels, labels = batch
        loss = functional.cross_entropy(self.layers(pixels), labels)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], _index: int) -> None:
        pixels, labels = batch
        self.log("accuracy", (self.layers(pixels).argmax(1) == labels).float().mean(), prog_bar=True)

    def configure_optimizers(self) -> dict:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.lr, weight_decay=0.01)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=self.trainer.max_epochs)
        return {"optimizer": optimizer, "lr_scheduler": schedule}


parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()

lightning.seed_everything(args.seed)
pixels, labels = load_digits(return_X_y=True)
data = TensorDataset(torch.tensor(pixels / 16, dtype=torch.float32), torch.tensor(labels))
train, test = random_split(data, [1437, 360])
best = ModelCheckpoint(monitor="accuracy", mode="max")
trainer = lightning.Trainer(
    strategy=PacelineStrategy(),
    max_epochs=args.epochs,
    gradient_clip_val=1.0,
    callbacks=[best],
    logger=CSVLogger("."),
    log_every_n_steps=10,
    enable_progress_bar=False,
)
trainer.fit(Digits(), DataLoader(train, batch_size=32, shuffle=True), DataLoader(test, batch_size=360))
print(f"last {trainer.callback_metrics['accuracy']:.4f}, best {best.best_model_score:.4f}")
