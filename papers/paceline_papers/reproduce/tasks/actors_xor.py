"""[Actors]' task: exclusive or with a 2-2-1 network of sigmoid units, 50,000 exact examples, squared error, one example a step.
What the paper leaves open (units, loss, first weights) is as in its authors' program.

paceline run actors_xor.py -w 5 -s 2 --policy asp --set plan.slices=layerwise
paceline run actors_xor.py -w 5 -s 0 --policy broadcast --set policy.tau=0.5 --set policy.own=gradient
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paceline.extend import BUNDLED, ConfigError, Dataset, Labelled

if TYPE_CHECKING:
    from torch import Tensor
    from torch.nn import Module

Array = NDArray[Any]

SETTINGS = {
    "epochs": 1,
    "batch_size": 1,
    "schedule": {"lr_scale": "none"},
    "optimizer": {"name": "sgd", "lr": 0.5, "momentum": 0.0, "weight_decay": 0.0},
}

EXAMPLES, LEAST = 50_000, 100
DEVIATION = 0.2
"""Of the first weights, around 0."""
CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
LABELS = np.array([0, 1, 1, 0])


def data(path: str) -> Dataset:
    """float32 corners of the unit square (N, 2), labels 0 and 1. `path` is 'bundled', or says how many training examples,
    like '10000'. Validation and test set are the four corners, once each."""
    drawn = np.random.default_rng(0).integers(0, len(CORNERS), _count(path))
    every = Labelled(CORNERS, LABELS)
    return Dataset(train=Labelled(CORNERS[drawn], LABELS[drawn]), validation=every, test=every)


def _count(path: str) -> int:
    if path == BUNDLED:
        return EXAMPLES
    if not (path.isdecimal() and int(path) >= LEAST):
        raise ConfigError(
            f"data.path of the task actors_xor is {path!r}; it is 'bundled', or how many training examples there are "
            f"({LEAST} or more)."
        )
    return int(path)


def model() -> "Module":
    """Two inputs, two hidden units, one output (a logit): 9 parameters."""
    from torch import nn

    layers = nn.Sequential(nn.Linear(2, 2), nn.Sigmoid(), nn.Linear(2, 1))
    for parameter in layers.parameters():
        nn.init.normal_(parameter, std=DEVIATION)
    return layers


def prepare(features: Array, labels: Array, rng: np.random.Generator) -> "tuple[Tensor, Tensor]":
    import torch

    return torch.from_numpy(features), torch.from_numpy(labels.astype(np.float32))


def loss(model: "Module", inputs: "Tensor", labels: "Tensor") -> "Tensor":
    """Half of the squared error of the output's sigmoid."""
    error: Tensor = model(inputs)[:, 0].sigmoid() - labels
    return error.square().mean() / 2


def metrics(outputs: "Tensor", labels: "Tensor") -> "dict[str, Tensor]":
    logits = outputs[:, 0]
    return {
        "accuracy": ((logits > 0) == labels).double().mean(),
        "squared_error": (logits.sigmoid() - labels).square().mean(),
    }
