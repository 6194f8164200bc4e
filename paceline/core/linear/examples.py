"""Sparse rows with their labels, checked once so that compiled loops need not."""

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.core.values import Vector

Longs = npt.NDArray[np.int64]
Features = npt.NDArray[np.uint32]
"""Numbers of features, from 0. Unsigned, since compiled loops take longer over an index that might be negative."""

f32 = np.float32
ALIKE = np.ones(1, f32)
"""The costs of rows that all count alike."""


class Examples(NamedTuple):
    """Sparse rows with their labels, as the loops read them; make them with `of`, which checks."""

    starts: Longs
    """Row i has the non-zeros starts[i] to starts[i + 1] (N + 1,)."""
    indices: Features
    """Which feature each non-zero belongs to, rising in a row (non-zeros,)."""
    values: Vector
    labels: Vector
    """-1 or +1 (N,); of more than two classes their numbers, of which `against` makes signs."""
    costs: Vector
    """How much each row counts (N,), or one value for all (1,)."""
    width: int
    """Features there are (D)."""

    @classmethod
    def of(
        cls,
        features: Any,
        labels: npt.NDArray[Any],
        positive: int | None = None,
        classes: int = 2,
        costs: Vector | None = None,
    ) -> Self:
        """From a scipy.sparse.csr_array (N, D), copied only where the types differ, and class numbers (N,): +1 for the
        class `positive` and -1 for the rest, without it +1 for 1 and -1 for 0, or of more than two `classes` the numbers.
        `costs`: as the field. DataError: other classes, no sparse rows, or an index that is not a feature."""
        if not hasattr(features, "indptr") or features.format != "csr":
            raise DataError(
                f"The features are {type(features).__name__}; expected sparse rows: scipy.sparse.csr_array(...)."
            )
        starts = np.ascontiguousarray(features.indptr, np.int64)
        width = features.shape[1]
        if width > 1 << 31:
            raise DataError(f"There are {width:,} features; expected at most 2^31.")
        _check_rows(starts, features.indices, features.data, width)
        signs = _signs(labels, positive, classes)
        if len(signs) != len(starts) - 1:
            raise DataError(f"There are {len(starts) - 1:,} rows but {len(signs):,} labels; every row needs one.")
        if costs is not None and len(costs) not in (1, len(signs)):
            raise DataError(f"There are {len(signs):,} rows but {len(costs):,} weights; every row needs one.")
        indices = np.ascontiguousarray(features.indices, np.uint32 if features.indices.dtype.itemsize > 4 else None)
        values = np.ascontiguousarray(features.data, f32)
        owed = ALIKE if costs is None else np.ascontiguousarray(costs, f32)
        return cls(starts, indices.view(np.uint32), values, signs, owed, width)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def uneven(self) -> Vector | None:
        """The costs (N,) where rows have different ones."""
        return self.costs if len(self.costs) == len(self.labels) > 1 else None

    def against(self, number: int) -> Self:
        """The same rows, of which those of this class are +1 and all others -1."""
        signs = np.where(self.labels == number, f32(1), f32(-1))
        return type(self)(self.starts, self.indices, self.values, signs, self.costs, self.width)

    def counts(self, intercept: bool = False) -> Longs:
        """Samples that have the feature (D,); behind them all samples, where there is an intercept."""
        found = np.bincount(self.indices, minlength=self.width)
        return np.append(found, len(self)) if intercept else found

    def every(self) -> Longs:
        """The numbers of all rows (N,)."""
        return np.arange(len(self), dtype=np.int64)

    def within(self, rows: Longs) -> Longs:
        """The numbers of these rows as loops take them, which would read past the end. DataError where there is no such
        row."""
        rows = np.ascontiguousarray(rows, np.int64)
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(self):
            raise DataError(
                f"The call asks for rows {rows.min():,} to {rows.max():,}, but there are {len(self):,}, counted from 0."
            )
        return rows

    def check_fits(self, weights: int) -> None:
        """Raises DataError unless `weights` is the number of features, or that plus one for the intercept."""
        if weights - self.width not in (0, 1):
            raise DataError(
                f"The rows have {self.width:,} features, but the model has {weights:,}; both must have the same number."
            )


def _check_rows(starts: Longs, indices: npt.NDArray[Any], values: npt.NDArray[Any], width: int) -> None:
    if len(indices) != len(values) or starts[0] != 0 or starts[-1] != len(indices) or (np.diff(starts) < 0).any():
        raise DataError(
            "The sparse rows don't fit together: indptr must rise from 0 to the number of indices and values."
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < width:
        raise DataError(
            f"The sparse rows have indices {indices.min():,} to {indices.max():,}, but there are only {width:,} "
            "features, counted from 0."
        )


def _signs(labels: npt.NDArray[Any], positive: int | None, classes: int) -> Vector:
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise DataError(
            f"The labels are {labels.dtype} of shape {labels.shape}; expected one class number for each row."
        )
    if positive is None and len(labels) and not 0 <= labels.min() <= labels.max() < classes:
        known = "0 and 1" if classes == 2 else f"0 to {classes - 1}"
        raise DataError(
            f"The labels are classes {labels.min()} to {labels.max()}; expected {known}. Set svm.positive to the "
            "class that is +1; all others are -1."
        )
    if positive is None and classes > 2:
        return labels.astype(f32)
    return np.where(labels == (1 if positive is None else positive), f32(1), f32(-1))
