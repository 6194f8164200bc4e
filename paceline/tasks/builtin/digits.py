"""8x8 images of handwritten digits, bundled in scikit-learn: 1,797 examples, a small MLP, seconds to 95 % accuracy."""

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.data.dataset import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch

SETTINGS = {
    "epochs": 10,
    "batch_size": 64,
    "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
}


def data(path: str) -> Dataset:
    """uint8 features (1797, 64) from 0 to 16, labels 0 to 9; all of it is training data, the sharder splits it."""
    refuse_path(path, "the digits come with scikit-learn")
    found = find_spec("sklearn")
    file = Path(str(found and found.origin)).parent / "datasets" / "data" / "digits.csv.gz"
    if file.is_file():  # to import scikit-learn would take much longer
        table = np.loadtxt(file, np.int64, delimiter=",")
        return Dataset(train=Labelled(table[:, :-1].astype(np.uint8), table[:, -1].copy()))
    from sklearn.datasets import load_digits

    features, labels = load_digits(return_X_y=True)
    return Dataset(train=Labelled(features.astype(np.uint8), labels.astype(np.int64)))


def model() -> "torch.nn.Module":
    """64 pixels, 64 hidden units, 10 classes: 4,810 parameters."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def prepare(
    features: npt.NDArray[Any], labels: npt.NDArray[Any], rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Pixels from 0 to 16 as float32 around 0, which every policy trains faster on."""
    import torch

    return torch.from_numpy((features.astype(np.float32) - 5) / 8), torch.from_numpy(labels.astype(np.int64))
