"""A task on your own table: which species a flower is. The CSV has a column `species` and four columns of measurements.

paceline run examples/flowers.py --data flowers.csv
"""

from paceline.extend import read_table

SETTINGS = {"epochs": 30, "batch_size": 8, "workers": 2, "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.0}}


def data(path):
    """Other readers: docs/start/data-formats.md."""
    return read_table(path, label="species")


def model():
    from torch import nn

    return nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 3))
