"""Made-up data instead of CIFAR-100: 100 fine classes, five in each of 20 coarse ones. `data.path` says which the labels
are; the coarse labels hide the fine classes, as hidden strata."""

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.extend import ConfigError, Dataset, Labelled
from paceline_papers.reproduce.tasks.with_test import with_test

if TYPE_CHECKING:
    import torch

COARSE, FINE, FEATURES, EACH = 20, 5, 64, 60
"""Coarse classes, fine ones in each, numbers of an example, and examples of each fine class."""
NOISE, SCALE = 2.6, 3.0
"""Deviation around a fine class's centre, and of a feature altogether, by which it is divided."""
SETTINGS = {"epochs": 20, "batch_size": 128, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}


def data(path: str) -> Dataset:
    """float32 features (6000, 64); labels 0 to 19 where `path` is coarse, 0 to 99 where it is fine. The fine classes of a
    coarse one lie about its centre, as far from it as it lies from the middle."""
    if path not in ("coarse", "fine"):
        raise ConfigError(f"data.path of the task classes_in_classes is {path!r}; expected coarse or fine.")
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((COARSE, 1, FEATURES)) + rng.standard_normal((COARSE, FINE, FEATURES))
    fine = rng.permutation(np.repeat(np.arange(COARSE * FINE), EACH))
    features = centres.reshape(-1, FEATURES)[fine] + NOISE * rng.standard_normal((len(fine), FEATURES))
    labels = fine // FINE if path == "coarse" else fine
    return with_test(Labelled((features / SCALE).astype(np.float32), labels.astype(np.int64)))


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """As they are."""
    import torch

    return torch.from_numpy(features), torch.from_numpy(labels.astype(np.int64))


def _to(classes: int) -> "torch.nn.Module":
    from torch import nn

    return nn.Sequential(nn.Linear(FEATURES, 128), nn.ReLU(), nn.Linear(128, classes))


def _coarse() -> "torch.nn.Module":
    """10,900 parameters."""
    return _to(COARSE)


def _fine() -> "torch.nn.Module":
    """21,220 parameters."""
    return _to(COARSE * FINE)


MODELS = {"coarse": _coarse, "fine": _fine}
