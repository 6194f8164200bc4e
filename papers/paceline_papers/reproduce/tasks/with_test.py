"""Data sets whose test examples are the same in every run, as CIFAR's are."""

from paceline.data.splits import split
from paceline.extend import Dataset, Labelled

SHARE, SEED = 0.15, 0
"""Of the examples that test, and what draws them; a run's own seed does not."""


def with_test(every: Labelled) -> Dataset:
    """The examples, cut into training and test examples."""
    parts = split(Dataset(train=every), 0.0, SHARE, SEED)
    train, test = (
        Labelled(every.features[part.rows], every.labels[part.rows]) for part in (parts.train, parts.kept["test"])
    )
    return Dataset(train=train, test=test)
