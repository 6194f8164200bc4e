"""Which examples train, which choose (validation) and which judge (test): seeded, with equal shares of each class."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from paceline.core.errors import ConfigError, DataError
from paceline.data.dataset import Dataset, Labelled, PartName, Rows, Selection


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The examples to train on, and those kept from training, by name."""

    train: Selection
    kept: dict[PartName, Selection]


def split(dataset: Dataset, validation: float, test: float, seed: int) -> Split:
    """Sets that the data brings are kept as they are; missing ones are cut from its training rows, `validation` and
    `test` being shares of those (0: no such part). Classes keep their shares; labels that are no classes are cut at
    random. DataError where a class has too few examples for that."""
    rows: Rows = np.arange(len(dataset.train), dtype=np.int64)
    kept: dict[PartName, Selection] = {}
    next_id = len(dataset.train)
    wanted: tuple[tuple[PartName, Labelled | None, float], ...] = (
        ("test", dataset.test, test),
        ("validation", dataset.validation, validation),
    )
    for name, own, share in wanted:
        if own is not None:
            kept[name] = Selection(own, np.arange(len(own), dtype=np.int64), next_id)
            next_id += len(own)
        elif share > 0:
            count = max(1, round(share * len(dataset.train)))
            rows, cut = _cut(dataset.train, rows, count, seed, name)
            kept[name] = Selection(dataset.train, cut)
    return Split(Selection(dataset.train, rows), kept)


def _cut(train: Labelled, rows: Rows, count: int, seed: int, name: PartName) -> tuple[Rows, Rows]:
    """The rows that stay, and `count` rows that are kept for the part `name`, both in rising order."""
    strata = None if train.classes is None else train.classes[rows]
    _check_room(strata, len(rows), count, name)
    state = int(np.random.default_rng(seed).integers(2**32))
    stay, kept = _train_test_split()(rows, test_size=count, stratify=strata, random_state=state)
    return np.sort(stay), np.sort(kept)


def _check_room(strata: Rows | None, rows: int, count: int, name: PartName) -> None:
    """DataError where a stratified cut is impossible: each class must be able to reach both sides."""
    least = 1
    if strata is not None:
        found, sizes = np.unique(strata, return_counts=True)
        least = len(found)
        if sizes.min() < 2:
            raise DataError(
                f"Class {found[sizes.argmin()]} has only {sizes.min()} example left when the {name} set is cut off; it "
                f"needs one on each side. Add examples, remove the class, or set data.{name} to 0."
            )
    if count < least or rows - count < least:
        raise DataError(
            f"data.{name} asks for {count} of {rows} examples, but both sides need at least {least} "
            f"(one for each class). Change data.{name}, or give more data."
        )


def _train_test_split() -> Callable[..., Any]:
    """scikit-learn's splitter, imported only where something is split."""
    try:
        from sklearn.model_selection import train_test_split
    except ImportError as error:
        raise ConfigError("Cutting off test data needs scikit-learn: pip install 'paceline[sharder]'.") from error
    return train_test_split  # type: ignore[no-any-return]
