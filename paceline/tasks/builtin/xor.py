"""Exclusive or with a 2-2-1 network: the smallest task that is not linear, made here, seconds to learn. It is not [Actors]'
task, which has exact examples, sigmoid units and squared error (papers/paceline_papers/reproduce/tasks/actors_xor.py)."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.data.dataset import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch

EXAMPLES, NOISE = 2000, 0.1

SETTINGS = {
    "epochs": 10,
    "batch_size": 64,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 0.0},
}


def data(path: str) -> Dataset:
    """float32 features (2000, 2): corners of the unit square with noise of 0.1; label 1 where the corner's two are not
    equal. Always the same ones."""
    refuse_path(path, "the examples of xor are made on the spot")
    rng = np.random.default_rng(0)
    corners = rng.integers(0, 2, (EXAMPLES, 2))
    features = (corners + rng.normal(scale=NOISE, size=corners.shape)).astype(np.float32)
    return Dataset(train=Labelled(features, corners[:, 0] ^ corners[:, 1]))


def model() -> "torch.nn.Module":
    """Two inputs, two hidden units, one output (a logit): 9 parameters."""
    import torch
    from torch import nn

    hidden = nn.Linear(2, 2)
    # Both units start along one diagonal, on either side of the middle: of those that start anywhere half end in a local
    # minimum (12 of 24 seeds), of these none.
    nn.init.normal_(hidden.weight, mean=1.0, std=0.3)
    hidden.bias = nn.Parameter(torch.tensor([0.5, -0.5]))
    return nn.Sequential(hidden, nn.Tanh(), nn.Linear(2, 1))


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Inputs around 0, float32; labels as float32, 0 or 1."""
    import torch

    return torch.from_numpy(2 * features.astype(np.float32) - 1), torch.from_numpy(labels.astype(np.float32))


def loss(model: "torch.nn.Module", inputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Mean binary cross entropy of the output's sigmoid."""
    from torch.nn import functional

    return functional.binary_cross_entropy_with_logits(model(inputs)[:, 0], labels)


def probabilities(outputs: "torch.Tensor") -> "torch.Tensor":
    """Of 0 and of 1 (examples, 2)."""
    import torch

    found = outputs[:, 0].sigmoid()
    return torch.stack([1 - found, found], 1)


def metrics(outputs: "torch.Tensor", labels: "torch.Tensor") -> dict[str, float]:
    """Accuracy (ratio) and the mean squared error of the output's sigmoid, by which [Actors] compares."""
    logits = outputs[:, 0]
    return {
        "accuracy": float(((logits > 0) == labels).double().mean()),
        "squared_error": float((logits.sigmoid() - labels).square().mean()),
    }
