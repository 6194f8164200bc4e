"""A task with a hidden stratum: four made-up classes, one of them with a rare kind that the labels don't show and that lies
next to another class. Dealt by the labels, some shards get several of the rare kind and others none.

paceline run hidden_strata.py --workers 12 --set data.strategy=distribution_aware
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
    "epochs": 12,
    "batch_size": 192,
    "batch": "global",
    "schedule": {"lr_scale": "inverse"},
    "optimizer": {"name": "sgd", "lr": 1.5, "momentum": 0.0},
}

CENTRES = np.array([[14, 4], [0, 0], [7, -6], [0, 8], [10, -6], [5, 14], [-9, -5]])
"""Of each stratum, in a plane; the deviation around each is 1."""
CLASSES = np.array([0, 1, 1, 2, 2, 3, 0])
"""Of each stratum: the last one, the rare kind, lies next to the second, which is of another class."""
SIZES = (600, 300, 300, 300, 300, 600)
"""Training examples of each stratum but the rare one."""
RARE, TESTED = 24, 500
"""Training examples of the rare kind, 4 % of its class, and how many the test set has."""


def data(path: str) -> Dataset:
    """float32 features (N, 2), labels 0 to 3. `path` is 'bundled', or says how many training examples are of the rare
    kind, like '8'. The validation set is drawn as the training set is, the test set is the rare kind alone."""
    train, validation, test = (Labelled(features, CLASSES[strata]) for features, strata in made(path))
    return Dataset(train=train, validation=validation, test=test)


def made(path: str) -> list[tuple[Array, Array]]:
    """(features, strata) of the training, the validation and the test examples."""
    rng = np.random.default_rng(0)
    common = (*SIZES, _rare(path))
    sets = []
    for sizes in (common, common, (0,) * len(SIZES) + (TESTED,)):
        strata = rng.permutation(np.repeat(np.arange(len(CENTRES)), sizes))
        features = CENTRES[strata] + rng.standard_normal((len(strata), 2))
        sets.append((features.astype(np.float32), strata))
    return sets


def _rare(path: str) -> int:
    if path == BUNDLED:
        return RARE
    if not (path.isdecimal() and 1 <= int(path) <= max(SIZES)):
        raise ConfigError(
            f"data.path of the task hidden_strata is {path!r}; it is 'bundled', or how many training examples are of the "
            f"rare kind (1 to {max(SIZES):,})."
        )
    return int(path)


def model() -> "Module":
    from torch import nn

    return nn.Sequential(nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 4))


def prepare(features: Array, labels: Array, rng: np.random.Generator) -> "tuple[Tensor, Tensor]":
    """Features of about the size of 1."""
    import torch

    return torch.from_numpy(features / 8), torch.from_numpy(labels.astype(np.int64))
