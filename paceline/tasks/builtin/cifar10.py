"""CIFAR-10: 50,000 colour images of 32x32, 10 classes; with ResNet-20 as He et al. 2015 trained it 91.25 % accuracy."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.data.cifar import read_cifar10
from paceline.data.dataset import Dataset
from paceline.tasks import cifar
from paceline.tasks.data_path import users_own

if TYPE_CHECKING:
    import torch

MEAN = np.array([0.4914, 0.4822, 0.4465], np.float32) * 255
DEVIATION = np.array([0.2470, 0.2435, 0.2616], np.float32) * 255
WHERE = (
    "download cifar-10-binary.tar.gz (163 MiB) from https://www.cs.toronto.edu/~kriz/cifar.html and give it, packed "
    "or unpacked,"
)

SETTINGS = cifar.RESNET_SETTINGS
MODELS = cifar.models(classes=10)
MODEL_SETTINGS = cifar.MODEL_SETTINGS


def data(path: str) -> Dataset:
    """uint8 images and labels 0 to 9 from the official binary files, with their test set; DataError: damaged files."""
    return read_cifar10(users_own(path, "CIFAR-10", WHERE))


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Normalised float32 images (examples, 3, 32, 32); in training with the standard augmentation."""
    return cifar.prepare(features, labels, rng, MEAN, DEVIATION)
