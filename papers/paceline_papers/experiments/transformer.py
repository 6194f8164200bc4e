"""A task for experiments: a tiny transformer that counts. Made up: 16 letters out of 8, and which one comes most often?"""

from typing import TYPE_CHECKING

import numpy as np

from paceline.extend import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch

LETTERS, LENGTH, EXAMPLES = 8, 16, 6000


def data(path: str) -> Dataset:
    """uint8 letters (6000, 16), and as label the one that comes most often; of several, the first of the alphabet."""
    refuse_path(path, "the letters are made up")
    letters = np.random.default_rng(0).integers(LETTERS, size=(EXAMPLES, LENGTH)).astype(np.uint8)
    counts = (letters[:, :, None] == np.arange(LETTERS)).sum(1)
    return Dataset(train=Labelled(letters, counts.argmax(1)))


def model() -> "torch.nn.Module":
    """Two layers of four heads, 32 wide, normalised behind each sum, where high rates hurt: 18,120 parameters."""
    import torch
    from torch import nn

    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.letters = nn.Embedding(LETTERS, 32)
            self.places = nn.Parameter(torch.randn(LENGTH, 32))
            layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.last = nn.Linear(32, LETTERS)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.last(self.layers(self.letters(inputs) + self.places).mean(1))
            return found

    return Counts()


def prepare(
    features: "np.ndarray", labels: "np.ndarray", rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """Letters as whole numbers."""
    import torch

    return torch.from_numpy(features.astype(np.int64)), torch.from_numpy(labels.astype(np.int64))
