"""A task for experiments: how far diabetes has progressed after a year, by ten measurements; bundled in scikit-learn."""

from typing import TYPE_CHECKING

import numpy as np

from paceline.extend import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch


def data(path: str) -> Dataset:
    """442 patients, measurements and target with mean 0 and variance 1; all of them are training data, the sharder splits."""
    from sklearn.datasets import load_diabetes

    refuse_path(path, "the patients come with scikit-learn")
    features, target = load_diabetes(return_X_y=True, scaled=False)
    features, target = ((found - found.mean(0)) / found.std(0) for found in (features, target))
    return Dataset(train=Labelled(features.astype(np.float32), target.astype(np.float32)))


def model() -> "torch.nn.Module":
    """10 measurements, 32 hidden units, one number: 385 parameters."""
    from torch import nn

    return nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 1))


def loss(model: "torch.nn.Module", inputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """The mean squared error."""
    from torch.nn import functional

    return functional.mse_loss(model(inputs)[:, 0], labels)


def metrics(outputs: "torch.Tensor", labels: "torch.Tensor") -> dict[str, float]:
    """R^2: the part of the target's variance that is explained (ratio)."""
    return {"r2": 1 - float((outputs[:, 0] - labels).square().mean() / labels.var(correction=0))}
