"""The digits with a deep network and a wide one, instead of [SHAT]'s ResNet-50 and VGG-16: the wide one has most of its
weights in one layer."""

from typing import TYPE_CHECKING

from paceline.tasks.builtin.digits import SETTINGS, data, prepare

if TYPE_CHECKING:
    import torch

__all__ = ["MODELS", "SETTINGS", "data", "prepare"]


def _chain(*widths: int) -> "torch.nn.Module":
    from itertools import pairwise

    from torch import nn

    first, *others = [nn.Linear(before, after) for before, after in pairwise(widths)]
    return nn.Sequential(first, *(layer for linear in others for layer in (nn.ReLU(), linear)))


def _deep() -> "torch.nn.Module":
    """Three layers: 6,570 parameters."""
    return _chain(64, 64, 32, 10)


def _wide() -> "torch.nn.Module":
    """Two layers: 38,410 parameters."""
    return _chain(64, 512, 10)


MODELS = {"deep": _deep, "wide": _wide}
