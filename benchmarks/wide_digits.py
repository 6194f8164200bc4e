"""A task for benchmarks: the digits that come with scikit-learn, and a model that is large enough for links to matter."""

import itertools
from typing import TYPE_CHECKING

from paceline.tasks.builtin.digits import SETTINGS, data, prepare

if TYPE_CHECKING:
    import torch

__all__ = ["SETTINGS", "data", "model", "prepare"]


def model() -> "torch.nn.Module":
    """64 pixels, two layers of 1,024 hidden units, 10 classes: 1,126,410 parameters, 4.5 MB."""
    from torch import nn

    widths = (64, 1024, 1024, 10)
    first, *others = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(first, *(layer for linear in others for layer in (nn.ReLU(), linear)))
