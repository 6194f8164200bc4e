"""CIFAR-100 by its 100 fine classes: 50,000 colour images of 32x32, 500 of each; the models of CIFAR-10."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.data.cifar import read_cifar100
from paceline.data.dataset import Dataset
from paceline.tasks import cifar
from paceline.tasks.data_path import users_own

if TYPE_CHECKING:
    import torch

MEAN = np.array([0.5071, 0.4865, 0.4409], np.float32) * 255
DEVIATION = np.array([0.2673, 0.2564, 0.2762], np.float32) * 255
WHERE = (
    "download cifar-100-binary.tar.gz (161 MiB) from https://www.cs.toronto.edu/~kriz/cifar.html and give it, "
    "packed or unpacked,"
)

SETTINGS = cifar.RESNET_SETTINGS
MODELS = cifar.models(classes=100)
MODEL_SETTINGS = cifar.MODEL_SETTINGS


def data(path: str) -> Dataset:
    """uint8 images and labels 0 to 99 from the official binary files, with their test set; DataError: damaged files."""
    return read_cifar100(users_own(path, "CIFAR-100", WHERE), "fine")


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Normalised float32 images (examples, 3, 32, 32); in training with the standard augmentation."""
    return cifar.prepare(features, labels, rng, MEAN, DEVIATION)
