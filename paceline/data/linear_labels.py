"""Which labels a linear model can be trained on, so that a mistake in them is found before training."""

from collections.abc import Mapping, Sequence

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array

MOST = 1000
"""Classes that are trained in one run at most."""
_WRITE = "(labels > 0).astype('int64') in data()"
_STRANGERS = 0.1
"""Share of a part's examples from which on labels that no training example has are another writing, not rare classes."""


def check_labels(train: Sequence[Array], parts: Mapping[str, Array], names: Sequence[str], task: str) -> None:
    """DataError where the training labels are no classes from 0, are all equal, are two with a gap, go too far, or are
    written otherwise than those of `parts` (validation, test): one is beyond all classes, or too many examples have one that
    no training example has. `names`: what classes are called, by number; empty where they have no names."""
    for labels in (*train, *parts.values()):
        _check_form(labels, task)
    found, counts = np.unique(np.concatenate(list(train)), return_counts=True)
    if len(found) == 1:
        raise DataError(
            f"All {counts[0]:,} training examples of task '{task}' have the label {_called(found[0], names)}; expected two "
            "classes, or more."
        )
    low, high = int(found[0]), int(found[-1])
    if low == 1 and not names and not any((labels == 0).any() for labels in parts.values()):
        raise DataError(
            f"The labels of task '{task}' go from 1 to {high}; expected classes from 0. If they count from 1, "
            "subtract 1 in data()."
        )
    if high >= MOST:
        raise DataError(
            f"The labels of task '{task}' go from {low} to {high}; expected classes from 0, at most {MOST:,} of "
            "them. Number them from 0 in data(), in the same way for all parts."
        )
    known = max(high + 1, len(names))
    for part, labels in parts.items():
        new = np.setdiff1d(labels, found)
        strangers = int(np.isin(labels, new).sum())
        if len(new) and (new[-1] >= known or strangers > _STRANGERS * len(labels)):
            listed = ", ".join(_called(label, names) for label in new[:5])
            raise DataError(
                f"The {part} examples of task '{task}' have the label {listed} ({strangers:,} of {len(labels):,} "
                f"examples), which no training example has: these have {_called(low, names)} "
                f"{'and' if len(found) == 2 else 'to'} {_called(high, names)}. Write the labels of all parts in "
                "the same way."
            )
    if len(found) == 2 and high > 1 and not names:
        raise DataError(
            f"The labels of task '{task}' are {low} and {high}; expected classes from 0 without a gap, or their "
            f"names (Dataset(..., classes=...)). To make them 0 and 1: (labels == {high}).astype('int64') in "
            "data()."
        )


def _check_form(labels: Array, task: str) -> None:
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        what = f"{labels.dtype} of shape {labels.shape}"
        raise DataError(
            f"The labels of task '{task}' are {what}; a linear model needs classes: give one whole number from 0 "
            f"for each example, like {_WRITE}."
        )
    if len(labels) and labels.min() < 0:
        raise DataError(
            f"The labels of task '{task}' go from {labels.min()} to {labels.max()}; expected classes from 0. To "
            f"change -1 and +1 to 0 and 1: {_WRITE}."
        )


def _called(label: int, names: Sequence[str]) -> str:
    return names[label] if label < len(names) else str(label)
