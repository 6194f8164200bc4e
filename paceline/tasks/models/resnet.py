"""Residual networks for 32x32 images: He et al. 2015, "Deep Residual Learning", section 4.2; and its ResNet-50."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.core.errors import ConfigError
from paceline.tasks.models.first_weights import start_convolutions


class Block(nn.Module):
    """Two 3x3 convolutions next to a shortcut without parameters (option A): every second pixel, new channels zero."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.extra = channels - channels_in

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels_in, h, w) to (examples, channels, h/stride, w/stride)."""
        out = functional.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        return functional.relu(out + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        if self.extra == 0 and self.stride == 1:
            return x
        before = self.extra // 2
        return functional.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, before, self.extra - before))


class CifarResNet(nn.Module):
    """ResNet of depth 6n+2 (20, 32, 44, 56, 110 in the paper): three stages of n blocks with 16, 32 and 64 channels."""

    def __init__(self, depth: int = 20, classes: int = 10) -> None:
        super().__init__()
        blocks, rest = divmod(depth - 2, 6)
        if blocks < 1 or rest:
            raise ConfigError(f"A ResNet for CIFAR can't have depth {depth}; it is 6n+2: 20, 32, 44, 56 or 110.")
        self.conv = nn.Conv2d(3, 16, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(16)
        widths = [16] * blocks + [32] * blocks + [64] * blocks
        layers = [Block(a, b, stride=1 if a == b else 2) for a, b in zip([16, *widths], widths, strict=False)]
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(64, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (examples, 3, 32, 32) to class scores (examples, classes)."""
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        scores: Tensor = self.linear(torch.mean(x, dim=(2, 3)))
        return scores


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions, the last four times as wide, next to a shortcut that is projected where its shape
    changes (option B). The stride is the 3x3 convolution's, as in today's ResNet-50."""

    def __init__(self, channels_in: int, width: int, stride: int) -> None:
        super().__init__()
        channels = 4 * width
        self.conv1 = nn.Conv2d(channels_in, width, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, channels, 1, bias=False)
        self.norm3 = nn.BatchNorm2d(channels)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels:
            projection = nn.Conv2d(channels_in, channels, 1, stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(channels))

    def forward(self, x: Tensor) -> Tensor:
        """(examples, channels_in, h, w) to (examples, 4 width, h/stride, w/stride)."""
        out = functional.relu(self.norm1(self.conv1(x)))
        out = functional.relu(self.norm2(self.conv2(out)))
        return functional.relu(self.norm3(self.conv3(out)) + self.shortcut(x))


class ResNet50(nn.Module):
    """ResNet-50 for 32x32 images [SHAT]: 3, 4, 6 and 3 bottlenecks behind one 3x3 convolution instead of a 7x7 one with
    pooling, which would leave 8x8 pixels; 23,520,842 parameters with 10 classes."""

    def __init__(self, classes: int = 10) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(64)
        layers: list[nn.Module] = []
        channels = 64
        for width, blocks, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for block in range(blocks):
                layers.append(Bottleneck(channels, width, stride if block == 0 else 1))
                channels = 4 * width
        self.blocks = nn.Sequential(*layers)
        self.linear = nn.Linear(channels, classes)
        start_convolutions(self)

    def forward(self, x: Tensor) -> Tensor:
        """Images (examples, 3, 32, 32) to class scores (examples, classes)."""
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        scores: Tensor = self.linear(torch.mean(x, dim=(2, 3)))
        return scores
