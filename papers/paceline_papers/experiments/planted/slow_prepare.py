"""The digits, whose examples take 30 ms a mini-batch to prepare."""

import time
from typing import Any

from paceline.tasks.builtin.digits import data, model
from paceline.tasks.builtin.digits import prepare as prepare_digits

SETTINGS = {"epochs": 10, "batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}
__all__ = ["SETTINGS", "data", "model", "prepare"]


def prepare(features: Any, labels: Any, rng: Any) -> Any:
    """As the digits', only late."""
    time.sleep(0.03)
    return prepare_digits(features, labels, rng)
