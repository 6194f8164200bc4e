"""The simple network with four layers that a CPU can train [Sharding Fig. 1]."""

import torch
from torch import Tensor, nn

from paceline.tasks.models.first_weights import start_convolutions


class Cnn(nn.Sequential):
    """Two 3x3 convolutions (32 and 64 channels), each halved by pooling, and two linear layers (128 units); the paper
    gives only their number. (examples, channels, size, size) to (examples, classes); 545,098 parameters for CIFAR-10."""

    def __init__(self, channels: int, size: int, classes: int) -> None:
        super().__init__(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * (size // 4) ** 2, 128),
            nn.ReLU(),
            nn.Linear(128, classes),
        )
        start_convolutions(self)

    def forward(self, images: Tensor) -> Tensor:
        """On a CPU with the channels of a pixel side by side, or pooling takes half of the time."""
        if images.device.type == "cpu":
            images = images.to(memory_format=torch.channels_last)
        outputs: Tensor = super().forward(images)  # type: ignore[no-untyped-call]
        return outputs
