"""The digits with two small convolutional networks, instead of [Survey]'s AlexNet and VGG, which have fully connected layers,
and its ResNets, which have none but the last one."""

from typing import TYPE_CHECKING

from paceline.tasks.builtin.digits import SETTINGS, data, prepare

if TYPE_CHECKING:
    import torch

__all__ = ["MODELS", "SETTINGS", "data", "prepare"]


def _connected() -> "torch.nn.Module":
    """One convolution before two fully connected layers, which have nearly all of the 34,346 parameters."""
    from torch import nn

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
    )


def _convolutional() -> "torch.nn.Module":
    """Three convolutions, two of them in a residual block, and one layer to the classes: 5,450 parameters."""
    from torch import nn

    class Residual(nn.Module):
        """x + F(x), with two convolutions."""

        def __init__(self, channels: int) -> None:
            super().__init__()
            self.first = nn.Conv2d(channels, channels, 3, padding=1)
            self.second = nn.Conv2d(channels, channels, 3, padding=1)

        def forward(self, inputs: "torch.Tensor") -> "torch.Tensor":
            return nn.functional.relu(inputs + self.second(nn.functional.relu(self.first(inputs))))

    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        Residual(16),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * 2 * 2, 10),
    )


MODELS = {"connected": _connected, "convolutional": _convolutional}
