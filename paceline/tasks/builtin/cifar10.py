"""CIFAR-10 with ResNet-20 as He et al. 2015 trained it: 50,000 colour images of 32x32, 10 classes, 91.25 % accuracy."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.core.errors import ConfigError
from paceline.data.cifar import read_cifar10
from paceline.data.dataset import Dataset

if TYPE_CHECKING:
    import torch

MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32).reshape(1, 3, 1, 1) * 255
DEVIATION = np.array([0.2470, 0.2435, 0.2616], np.float32).reshape(1, 3, 1, 1) * 255
SIZE, PAD = 32, 4

SETTINGS = {
    "epochs": 182,
    "batch_size": 128,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
}


def data(path: str) -> Dataset:
    """uint8 images and labels 0 to 9 from the official binary files, with their test set; DataError: damaged files."""
    if path == "bundled":
        raise ConfigError(
            "CIFAR-10 does not come with Paceline: download cifar-10-binary.tar.gz (163 MiB) from "
            "https://www.cs.toronto.edu/~kriz/cifar.html and set data.path to it, packed or unpacked."
        )
    return read_cifar10(path)


def model() -> "torch.nn.Module":
    """ResNet-20: 269,722 parameters."""
    from paceline.tasks.models.resnet import CifarResNet

    return CifarResNet(depth=20)


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Normalised float32 images (examples, 3, 32, 32); in training moved by up to 4 pixels and maybe flipped."""
    import torch

    images = features.reshape(-1, 3, SIZE, SIZE)
    if rng is not None:
        images = augment(images, rng)
    return torch.from_numpy((images - MEAN) / DEVIATION), torch.from_numpy(labels.astype(np.int64))


def augment(images: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Each image padded with 4 black pixels, cropped back at a random place and mirrored with probability one half."""
    padded = np.pad(images, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIZE, SIZE), axis=(2, 3))
    rows, columns = rng.integers(0, 2 * PAD + 1, (2, len(images)))
    cropped: npt.NDArray[np.uint8] = windows[np.arange(len(images)), :, rows, columns]
    flipped = rng.random(len(images)) < 0.5
    cropped[flipped] = cropped[flipped, :, :, ::-1]
    return cropped
