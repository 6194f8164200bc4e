"""What the CIFAR tasks share: their models, the standard augmentation, and settings of the papers."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
SIZE, PAD = 32, 4

# He et al. 2015, section 4.2.
RESNET_SETTINGS = {
    "epochs": 182,
    "batch_size": 128,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
}

# resnet50 and vgg16 as [SHAT] 4.1 trains them on one worker. The others are ours: rates of resnet20, cnn and alexnet are the
# best of those tried (papers/paceline_papers/experiments/results.md, "CIFAR's models").
MODEL_SETTINGS: dict[str, dict[str, Any]] = {
    "resnet20": {
        "optimizer": {"name": "sgd", "lr": 0.03, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "cnn": {
        "epochs": 20,
        "optimizer": {"name": "sgd", "lr": 0.03, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "resnet50": {
        "epochs": 250,
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "alexnet": {
        "epochs": 100,
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4},
    },
    "vgg16": {
        "epochs": 250,
        "batch_size": 96,
        "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4},
    },
    "vgg16_small": {
        "epochs": 100,
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9, "weight_decay": 5e-4},
    },
}


def models(classes: int) -> "dict[str, Callable[[], torch.nn.Module]]":
    """Constructors of all models for 32x32 colour images, by name; torch is imported when one is called."""

    def resnet(depth: int) -> "torch.nn.Module":
        from paceline.tasks.models.resnet import CifarResNet

        return CifarResNet(depth, classes)

    def resnet50() -> "torch.nn.Module":
        from paceline.tasks.models.resnet import ResNet50

        return ResNet50(classes)

    def cnn() -> "torch.nn.Module":
        from paceline.tasks.models.cnn import Cnn

        return Cnn(channels=3, size=SIZE, classes=classes)

    def alexnet() -> "torch.nn.Module":
        from paceline.tasks.models.cnn import AlexNet

        return AlexNet(classes)

    def vgg16(is_small: bool) -> "torch.nn.Module":
        from paceline.tasks.models.cnn import small_vgg16, vgg16

        return small_vgg16(classes) if is_small else vgg16(classes)

    return {
        **{f"resnet{depth}": partial(resnet, depth) for depth in (20, 32, 44, 56, 110)},
        "cnn": cnn,
        "resnet50": resnet50,
        "alexnet": alexnet,
        "vgg16": partial(vgg16, is_small=False),
        "vgg16_small": partial(vgg16, is_small=True),
    }


def prepare(
    images: Array, labels: Array, rng: np.random.Generator | None, mean: Array, deviation: Array
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Float32 images (examples, 3, 32, 32), normalised by each colour's mean and deviation (of values from 0 to 255); in
    training moved by up to 4 pixels and maybe flipped."""
    import torch

    if rng is not None:
        images = augment(images, rng)
    normal = (images - mean.reshape(1, 3, 1, 1)) / deviation.reshape(1, 3, 1, 1)
    return torch.from_numpy(normal), torch.from_numpy(labels.astype(np.int64))


def augment(images: npt.NDArray[np.uint8], rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """Each image padded with 4 black pixels, cropped back at a random place and mirrored with probability one half."""
    padded = np.pad(images, ((0, 0), (0, 0), (PAD, PAD), (PAD, PAD)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIZE, SIZE), axis=(2, 3))
    rows, columns = rng.integers(0, 2 * PAD + 1, (2, len(images)))
    cropped: npt.NDArray[np.uint8] = windows[np.arange(len(images)), :, rows, columns]
    flipped = rng.random(len(images)) < 0.5
    cropped[flipped] = cropped[flipped, :, :, ::-1]
    return cropped
