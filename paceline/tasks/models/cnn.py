"""Plain stacks of convolutions: the simple network with four layers that a CPU can train [Sharding Fig. 1], AlexNet for 32x32
images, and VGG-16 (Simonyan and Zisserman 2014, configuration D), whose linear layers hold most of its parameters."""

import torch
from torch import Tensor, nn

from paceline.tasks.models.first_weights import start_convolutions

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
"""Channels of the 3x3 convolutions; each stage ends with pooling by 2."""


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


class AlexNet(nn.Sequential):
    """The five convolutions of Krizhevsky 2014 ("One weird trick", section 5: one column of 64, 192, 384, 256 and 256),
    pooled by 2 where the original pools by 3, which leaves one pixel; so one linear layer replaces the original's three.
     (examples, 3, 32, 32) to (examples, classes); 2,472,266 parameters with 10 classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__(
            nn.Conv2d(3, 64, 11, stride=4, padding=5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(256, classes),
        )
        start_convolutions(self)


def vgg16(classes: int = 10) -> nn.Module:
    """VGG-16 as [SHAT] counts it: the head of the original (25,088-4096-4096) with dropout, which 7x7 adaptive pooling
    feeds whatever the image's size. 134,301,514 parameters with 10 classes, 89 % of them in linear layers. Images
    (examples, 3, n, n), n >= 32, to class scores (examples, classes)."""
    model = nn.Sequential(
        *_convolutions(has_norm=False),
        nn.AdaptiveAvgPool2d(7),
        nn.Flatten(),
        nn.Linear(512 * 7 * 7, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, 4096),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )
    start_convolutions(model)
    return model


def small_vgg16(classes: int = 10) -> nn.Module:
    """Its 13 convolutions with batch normalisation and one linear layer, the usual form for CIFAR: 14,728,266 parameters
    with 10 classes. Images (examples, 3, 32, 32) to class scores (examples, classes)."""
    model = nn.Sequential(*_convolutions(has_norm=True), nn.Flatten(), nn.Linear(512, classes))
    start_convolutions(model)
    return model


def _convolutions(has_norm: bool) -> list[nn.Module]:
    layers: list[nn.Module] = []
    before = 3
    for stage in STAGES:
        for channels in stage:
            layers.append(nn.Conv2d(before, channels, 3, padding=1))
            layers += [nn.BatchNorm2d(channels)] if has_norm else []
            layers.append(nn.ReLU())
            before = channels
        layers.append(nn.MaxPool2d(2))
    return layers
