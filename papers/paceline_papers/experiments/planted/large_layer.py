"""The digits with a model of 4.4 million weights, of which one layer has nearly all."""

from typing import Any

from paceline.tasks.builtin.digits import data

SETTINGS = {"epochs": 10, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.001, "momentum": 0.9}}
__all__ = ["SETTINGS", "data", "model"]


def model() -> Any:
    """A layer of 2048 by 2048 in the middle."""
    from torch import nn

    return nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10))
