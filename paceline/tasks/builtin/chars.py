"""A small language model on a text of the user's: which character comes next? A GRU, minutes on a laptop."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.data.dataset import Dataset
from paceline.data.text import WHERE, read_text
from paceline.tasks.data_path import users_own

if TYPE_CHECKING:
    import torch

WINDOW = 64

METRICS_ARE_MEANS = True  # 64 KiB of outputs for each example would not all fit into memory

SETTINGS = {
    "epochs": 15,
    "batch_size": 32,
    "optimizer": {"name": "sgd", "lr": 0.4, "momentum": 0.9, "weight_decay": 0.0},
}


def data(path: str) -> Dataset:
    """uint8 windows (N, 64) of the text's bytes and the byte after each; the text's last parts are kept for scoring."""
    return read_text(users_own(path, "The text", f"{WHERE.rstrip('.')}; give the file"), WINDOW)


def model() -> "torch.nn.Module":
    """Byte vectors of 64, a GRU of 128 units, scores of the 256 bytes: 123,904 parameters."""
    from paceline.tasks.models.chars import NextByte

    return NextByte()


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Windows as int64 (examples, 64), and for each of their bytes the next one, (examples, 64)."""
    import torch

    following = np.concatenate([features[:, 1:], labels[:, None]], axis=1)
    return torch.from_numpy(features.astype(np.int64)), torch.from_numpy(following.astype(np.int64))


def loss(model: "torch.nn.Module", inputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Mean cross entropy of a byte (nats; guessing gives ln 256 = 5.55), which is a character's in plain English."""
    from torch.nn import functional

    return functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())


def probabilities(outputs: "torch.Tensor") -> "torch.Tensor":
    """Of each byte (256) to come after the window."""
    return outputs[:, -1].softmax(1)


def metrics(outputs: "torch.Tensor", labels: "torch.Tensor") -> dict[str, float]:
    """Accuracy (ratio): how often the likeliest byte is the next one."""
    return {"accuracy": float((outputs.argmax(2) == labels).double().mean())}
