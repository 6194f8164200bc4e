"""Examples in memory, as a task hands them over: features, labels, and which of them are kept for which purpose."""

import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
PartName = Literal["validation", "test"]


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Examples with their labels, checked once so that nobody downstream must: features (N, ...), labels (N, ...).
    Whole-number labels in one column are classes. DataError where the arrays can't be training data."""

    features: Array
    labels: Array

    def __post_init__(self) -> None:
        for name, array in (("features", self.features), ("labels", self.labels)):
            if not isinstance(array, np.ndarray) or array.ndim == 0 or array.dtype.kind not in "biuf":
                seen = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
                raise DataError(
                    f"The {name} are {seen}; expected a numpy array of numbers with one row for each example."
                )
        if len(self.features) != len(self.labels):
            raise DataError(
                f"There are {len(self.features):,} rows of features but {len(self.labels):,} labels; "
                "every example needs one of each."
            )
        if not len(self.features):
            raise DataError("There are no examples; expected at least one row.")
        for name, array in (("features", self.features), ("labels", self.labels)):
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                row = int(np.argmin(np.isfinite(array).reshape(len(array), -1).all(axis=1)))
                raise DataError(f"The {name} of example {row:,} hold NaN or infinity; remove or repair the example.")

    def __len__(self) -> int:
        return len(self.features)

    @property
    def classes(self) -> Rows | None:
        """Each example's class; None where labels are not classes."""
        return self.labels.astype(np.int64) if is_class_label(self.labels) else None


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """All examples of a task. Where it brings no test or validation set of its own, `split` cuts one from `train`."""

    train: Labelled
    test: Labelled | None = None
    validation: Labelled | None = None

    def __post_init__(self) -> None:
        for name, part in (("test", self.test), ("validation", self.validation)):
            if part is not None and part.features.shape[1:] != self.train.features.shape[1:]:
                raise DataError(
                    f"An example of the {name} set has shape {part.features.shape[1:]}, one of the training set "
                    f"{self.train.features.shape[1:]}; both must be alike."
                )

    def digest(self) -> str:
        """SHA-256 of all examples: tells whether shards were made from this very data."""
        total = hashlib.sha256()
        for part in (self.train, self.test, self.validation):
            for array in (part.features, part.labels) if part is not None else ():
                total.update(f"{array.dtype.str}{array.shape}".encode())
                total.update(np.ascontiguousarray(array).data)
            total.update(b"|")
        return total.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Some rows of a set, not copied before they are asked for. `first_id` is the id of the set's row 0: ids number the
    examples of the whole data set, training rows first, then test, then validation rows."""

    source: Labelled
    rows: Rows
    first_id: int = 0

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> Array:
        return np.ascontiguousarray(self.source.features[self.rows])

    @property
    def labels(self) -> Array:
        return np.ascontiguousarray(self.source.labels[self.rows])

    @property
    def ids(self) -> Rows:
        return (self.rows + self.first_id).astype(np.int64)

    def pick(self, positions: Rows) -> "Selection":
        """Those of the selected rows that stand at these positions in it."""
        return Selection(self.source, self.rows[positions], self.first_id)


def is_class_label(labels: Array) -> bool:
    """Whether the labels are classes: one whole number for each example."""
    return labels.ndim == 1 and labels.dtype.kind in "biu"
