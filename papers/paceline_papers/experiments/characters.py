"""A task for experiments: a small GPT that says the next character of a real text, which ships with Python: the language
reference behind `help()`."""

from typing import TYPE_CHECKING

import numpy as np

from paceline.extend import Dataset, Labelled
from paceline.tasks.data_path import refuse_path

if TYPE_CHECKING:
    import torch

CHARACTERS, LENGTH, EXAMPLES, TESTS = 128, 32, 4800, 1000
WIDTH, HEADS, LAYERS = 200, 4, 2


def data(path: str) -> Dataset:
    """uint8 windows of 33 characters (4800 and 1000 of them), the tests from behind the training text; labels are in them."""
    from pydoc_data.topics import topics

    refuse_path(path, "the text comes with Python")
    text = np.frombuffer("\n".join(topics[each] for each in sorted(topics)).encode("ascii", "replace"), np.uint8)
    windows = text[: len(text) // (LENGTH + 1) * (LENGTH + 1)].reshape(-1, LENGTH + 1)
    train, test = windows[:EXAMPLES], windows[-TESTS:]
    return Dataset(
        train=Labelled(train, np.zeros(len(train), np.int64)), test=Labelled(test, np.zeros(TESTS, np.int64))
    )


def model() -> "torch.nn.Module":
    """Two layers of four heads, 200 wide, normalised before each sum: 1.02 million parameters."""
    import torch
    from torch import nn

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.characters = nn.Embedding(CHARACTERS, WIDTH)
            self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
            layer = nn.TransformerEncoderLayer(
                WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            self.layers = nn.TransformerEncoder(layer, LAYERS, nn.LayerNorm(WIDTH), enable_nested_tensor=False)
            self.last = nn.Linear(WIDTH, CHARACTERS)

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            """Scores of the next character at each place (N, 128, 32)."""
            before = nn.Transformer.generate_square_subsequent_mask(LENGTH)
            found: torch.Tensor = self.last(
                self.layers(self.characters(inputs) + self.places, mask=before, is_causal=True)
            )
            return found.transpose(1, 2)

    return Gpt()


def prepare(
    features: "np.ndarray", labels: "np.ndarray", rng: np.random.Generator | None
) -> "tuple[torch.Tensor, torch.Tensor]":
    """The first 32 characters of a window, and the last 32, which follow these."""
    import torch

    whole = torch.from_numpy(features.astype(np.int64))
    return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()


def loss(model: "torch.nn.Module", inputs: "torch.Tensor", labels: "torch.Tensor") -> "torch.Tensor":
    """Mean cross entropy of a character."""
    from torch import nn

    return nn.functional.cross_entropy(model(inputs), labels)


def metrics(outputs: "torch.Tensor", labels: "torch.Tensor") -> dict[str, float]:
    """Share of the characters that are right."""
    return {"accuracy": (outputs.argmax(1) == labels).float().mean().item()}
