"""A task whose examples are numbered, so that a model can count how often each of them is in it."""

import numpy as np

from paceline.extend import Dataset, Labelled

WORKERS = 4
EACH = 64
"""Examples of each worker: whole mini-batches of 4."""


def data(path: str) -> Dataset:
    """Examples with their own number as their only feature."""
    numbers = np.arange(WORKERS * EACH, dtype=np.int64)
    return Dataset(train=Labelled(numbers[:, None], numbers % 2))


def model() -> None:
    """Workers bring a replica in numpy (tests/support/numpy_worker.py)."""
    raise AssertionError("the ledger has no model of torch")
