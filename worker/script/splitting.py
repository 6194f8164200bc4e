"""Rows that are kept from training: the same in all processes, and alone."""

from typing import Any

import numpy as np
from torch.utils.data import Subset

from paceline.core.errors import ConfigError
from paceline.data.dataset import Array, Dataset, Labelled, PartName, is_class_label
from paceline.data.splits import split as split_rows
from paceline.worker.script.labels import given_labels, labels_at_hand
from paceline.worker.script.training_data import check_dataset, is_stream, length_of


def split(dataset: Any, test: float, validation: float, seed: int, labels: Any = None) -> list["Subset[Any]"]:
    """The rows to train on, those for validation if `validation` is above 0, and those for the test. Classes keep their shares
    if the labels are known and each class has room on both sides; otherwise the rows are cut at random. Raises ConfigError for
    invalid shares or data sets."""
    check_dataset(dataset)
    if is_stream(dataset):
        raise ConfigError(
            f"A {type(dataset).__name__} is a stream, whose examples have no numbers to split by. Split the data "
            "before you make the stream."
        )
    count = length_of(dataset, None, False)
    _check_shares(count, test, validation)
    found = labels_at_hand(dataset) if labels is None else given_labels(labels, count)
    strata = _strata(found, count, [share for share in (test, validation) if share])
    examples = Labelled(np.zeros((count, 1), np.uint8), strata)
    parts = split_rows(Dataset(examples), validation, test, seed)
    names: tuple[PartName, ...] = ("validation", "test")
    kept = [parts.kept[name].rows for name in names if name in parts.kept]
    return [Subset(dataset, rows.tolist()) for rows in (parts.train.rows, *kept)]


def _strata(labels: Array | None, count: int, shares: list[float]) -> Array:
    """The classes to cut by; other numbers if the rows must be cut at random."""
    at_random = np.zeros(count, np.float32)
    if labels is None or not is_class_label(labels):
        return at_random
    _, sizes = np.unique(labels, return_counts=True)
    has_room = sizes.min() > len(shares) and all(round(share * count) >= len(sizes) for share in shares)
    return labels if has_room else at_random


def _check_shares(count: int, test: float, validation: float) -> None:
    for name, share in (("test", test), ("validation", validation)):
        if not 0 <= share < 1:
            raise ConfigError(f"paceline.split: {name} is {share}; expected a share of the rows, from 0 to below 1.")
    if not 0 < test + validation < 1:
        raise ConfigError(
            f"paceline.split: test={test} and validation={validation} leave "
            f"{'nothing to keep apart' if test + validation == 0 else 'no rows to train on'}. Give shares like test=0.15."
        )
    kept = sum(max(1, round(share * count)) for share in (test, validation) if share)
    if kept >= count:
        raise ConfigError(
            f"paceline.split would set aside {kept} of {count} rows, so no row is left to train on. Give smaller "
            "shares."
        )
