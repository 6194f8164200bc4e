"""Residual networks for 32x32 images: He et al. 2015, "Deep Residual Learning", section 4.2."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from paceline.core.errors import ConfigError


class Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut without parameters (option A): every second pixel, new channels zero."""

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride, self.extra = stride, channels - channels_in

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
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Images (examples, 3, 32, 32) to class scores (examples, classes)."""
        x = self.blocks(functional.relu(self.norm(self.conv(x))))
        scores: Tensor = self.linear(torch.mean(x, dim=(2, 3)))
        return scores
