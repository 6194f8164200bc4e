"""A task for experiments: the digits, and a small network with convolutions."""

from typing import TYPE_CHECKING

from paceline.tasks.builtin.digits import data, prepare

if TYPE_CHECKING:
    import torch

__all__ = ["data", "model", "prepare"]


def model() -> "torch.nn.Module":
    """Two convolutions, two linear layers: 18,794 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 3, 2, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
