"""A task for experiments: a tiny transformer that repeats. Made up: 8 letters, the same 8 again, and which one comes next?"""

from typing import TYPE_CHECKING

import numpy as np

from paceline.data.dataset import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch

LETTERS, HALF, EXAMPLES = 16, 8, 6000


def data(path: str) -> Dataset:
    """uint8 letters (6000, 15), of which the last 7 are the first 7 again, and the eighth as label."""
    refuse_path(path, "the letters are made up")
    found = np.random.default_rng(0).integers(LETTERS, size=(EXAMPLES, HALF)).astype(np.uint8)
    return Dataset(train=Labelled(np.concatenate([found, found[:, :-1]], axis=1), found[:, -1].astype(np.int64)))


def model() -> "torch.nn.Module":
    """Two layers of four heads, 32 wide: about 27,000 parameters."""
    import torch
    from torch import nn

    class Repeats(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters, self.places = nn.Embedding(LETTERS, 32), nn.Parameter(torch.randn(2 * HALF - 1, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.last = nn.Linear(32, LETTERS)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.layers(self.letters(inputs) + self.places)[:, -1])
            return found

    return Repeats()


def prepare(
    features: "np.ndarray", labels: "np.ndarray", rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Letters as whole numbers."""
    import torch

    return torch.from_numpy(features.astype(np.int64)), torch.from_numpy(labels.astype(np.int64))
