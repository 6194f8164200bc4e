"""Made-up classes in 64 dimensions, as many examples as one asks for: for speed tests and for trying policies out."""

import itertools
from typing import TYPE_CHECKING

import numpy as np

from paceline.core.errors import ConfigError
from paceline.data.dataset import Dataset, Labelled
from paceline.data.files import BUNDLED

if TYPE_CHECKING:
    import torch

FEATURES, CLASSES = 64, 10
LIMITS = {"examples": (10_000, 20, 10_000_000), "noise": (2, 0, 1000), "seed": (0, 0, 2**32 - 1)}
"""Default, smallest and largest value of what `data.path` may say."""

SETTINGS = {
    "epochs": 5,
    "batch_size": 128,
    "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 1e-4},
}


def data(path: str) -> Dataset:
    """float32 features (examples, 64), labels 0 to 9. `path` is 'bundled' or some of 'examples=10000,noise=2,seed=0':
    each class is a centre (standard normal) with noise of that deviation around it."""
    options = _options(path)
    rng = np.random.default_rng(options["seed"])
    centres = rng.standard_normal((CLASSES, FEATURES), np.float32)
    labels = rng.permutation(np.arange(options["examples"]) % CLASSES)
    features = rng.standard_normal((options["examples"], FEATURES), np.float32)
    features *= options["noise"]
    features += centres[labels]
    return Dataset(train=Labelled(features, labels))


def _options(path: str) -> dict[str, int]:
    """What `data.path` says, over the defaults."""
    found = {key: default for key, (default, _, _) in LIMITS.items()}
    for pair in path.split(",") if path != BUNDLED else ():
        key, _, value = pair.partition("=")
        _, least, most = LIMITS.get(key, (0, 0, -1))
        if not (value.isdecimal() and least <= int(value) <= most):
            told = ", ".join(f"{name}={low}..{high}" for name, (_, low, high) in LIMITS.items())
            raise ConfigError(
                f"data.path of the task synthetic holds {pair!r}; expected 'bundled', or whole numbers for some "
                f"of {told}, like 'examples=100000,noise=3'."
            )
        found[key] = int(value)
    return found


def _small() -> "torch.nn.Module":
    """One hidden layer: 9,610 parameters."""
    return _mlp(64, 128, 10)


def _wide() -> "torch.nn.Module":
    """As many parameters as ResNet-50 for a fraction of its time: 23,501,670."""
    return _mlp(64, 4810, 4810, 10)


def _mlp(*widths: int) -> "torch.nn.Module":
    from torch import nn

    first, *others = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(first, *(layer for linear in others for layer in (nn.ReLU(), linear)))


MODELS = {"small": _small, "wide": _wide}
