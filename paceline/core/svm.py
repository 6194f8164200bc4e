"""A linear model over sparse rows, stepped in place: its gradients, and what a worker has moved since it was last asked.

The loops are compiled and release the GIL. Weights are float32 and margins are summed in float64, always in the same
order, so that the same rows in the same order give the same bits. Threads that step one array of weights at the same
time may lose each other's writes, never tear one [Niu et al. 2011]."""

from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from numba import types

from paceline.core.compiled import check_lengths, floats, floats_out, inner_kernel, kernel, nothing, scalar
from paceline.core.errors import ConfigError, DataError
from paceline.core.objective import Objective
from paceline.core.prefetch import prefetch
from paceline.core.values import Places, Sparse, Vector

Longs = npt.NDArray[np.int64]
Features = npt.NDArray[np.uint32]
"""Numbers of features, from 0. Unsigned, since compiled loops take longer over an index that might be negative."""

f32 = np.float32
_longs = types.Array(types.int64, 1, "C", readonly=True, aligned=False)
_features = types.Array(types.uint32, 1, "C", readonly=True, aligned=False)
_features_out = types.Array(types.uint32, 1, "C", aligned=False)
_flags = types.Array(types.boolean, 1, "C", readonly=True, aligned=False)
_flags_out = types.Array(types.boolean, 1, "C", aligned=False)


class Examples(NamedTuple):
    """Sparse rows with their labels, as the loops read them; make them with `of`, which checks."""

    starts: Longs
    """Row i has the non-zeros starts[i] to starts[i + 1] (N + 1,)."""
    indices: Features
    """Which feature each non-zero belongs to, rising in a row (non-zeros,)."""
    values: Vector
    labels: Vector
    """-1 or +1 (N,)."""
    width: int
    """Features there are (D)."""

    @classmethod
    def of(cls, features: Any, labels: npt.NDArray[Any], positive: int | None = None) -> Self:
        """From a scipy.sparse.csr_array (N, D), copied only where the types differ, and class numbers (N,): +1 for the
        class `positive` and -1 for the rest, without it +1 for 1 and -1 for 0. DataError: other classes, no sparse rows,
        or an index that is not a feature."""
        if not hasattr(features, "indptr") or features.format != "csr":
            raise DataError(
                f"The features are {type(features).__name__}; expected sparse rows: scipy.sparse.csr_array(...)."
            )
        starts = np.ascontiguousarray(features.indptr, np.int64)
        width = features.shape[1]
        if width > 1 << 31:
            raise DataError(f"There are {width:,} features; expected at most 2^31.")
        _check_rows(starts, features.indices, features.data, width)
        signs = _signs(labels, positive)
        if len(signs) != len(starts) - 1:
            raise DataError(f"There are {len(starts) - 1:,} rows but {len(signs):,} labels; every row needs one.")
        indices = np.ascontiguousarray(features.indices, np.uint32 if features.indices.dtype.itemsize > 4 else None)
        return cls(starts, indices.view(np.uint32), np.ascontiguousarray(features.data, f32), signs, width)

    def __len__(self) -> int:
        return len(self.labels)

    def counts(self) -> Longs:
        """Samples that have the feature (D,)."""
        return np.bincount(self.indices, minlength=self.width)

    def every(self) -> Longs:
        """The numbers of all rows (N,)."""
        return np.arange(len(self), dtype=np.int64)


class Hits(NamedTuple):
    """How often predictions are right (ratios)."""

    accuracy: float
    precision: float
    """Of the rows called +1, those that are; 0 where none is called so."""
    recall: float
    """Of the rows that are +1, those called so; 0 where there is none."""

    @classmethod
    def of(cls, labels: Vector, margins: Vector) -> Self:
        """Of labels and margins (N,) each, whose signs are compared."""
        called, true = margins > 0, labels > 0
        both = int(np.count_nonzero(called & true))
        return cls(
            accuracy=float(np.mean(called == true)),
            precision=both / max(1, int(np.count_nonzero(called))),
            recall=both / max(1, int(np.count_nonzero(true))),
        )


class Score(NamedTuple):
    """How well weights do on some examples."""

    loss: float
    """Mean of the samples' losses."""
    penalty: float
    """lam / 2 * |w|^2."""
    accuracy: float
    precision: float
    recall: float
    """As in `Hits`."""

    @property
    def total(self) -> float:
        """What [Hogwild] calls the loss."""
        return self.loss + self.penalty


class LinearModel:
    """Weights (D,), stepped in place. With `tracks` it also knows what its steps have moved. Several models may share one
    array of weights, each in its own thread; a model itself is not thread-safe."""

    def __init__(self, weights: Vector, objective: Objective, decays: Vector, tracks: bool = False) -> None:
        """`decays`: see `Objective.decays`. Memory follows D, in pages that are taken only when they are touched."""
        if len(decays) not in (1, len(weights)):
            raise ConfigError(
                f"There are {len(decays):,} decays for {len(weights):,} weights; expected one, or one for each."
            )
        self.weights = weights
        self._decays = decays
        self._is_logistic, self._is_mean = objective.loss == "logistic", objective.reduce == "mean"
        self._sums = np.zeros(len(weights), f32)
        self._batch, self._moved = _Support(len(weights)), _Support(len(weights)) if tracks else None
        self._before = np.empty(len(weights) if tracks else 0, f32)

    def gradient(self, examples: Examples, rows: Longs) -> Sparse:
        """The gradient of one batch, of features whose value is not 0; sum or mean as the objective says."""
        rows = self._checked(examples, rows)
        self._batch.add(examples, rows)
        _add_gradient(*examples[:4], rows, self.weights, self._decays, self._is_logistic, self._sums)
        places = self._batch.take()
        values = self._sums[places]
        self._sums[places] = 0
        if self._is_mean:
            values /= f32(max(1, len(rows)))
        return _sparse(places, values, len(self.weights))

    def step(self, examples: Examples, rows: Longs, batch_size: int, lr: float) -> None:
        """One step w <- w - lr * gradient for every `batch_size` rows, in their order; the last batch may be smaller."""
        rows = self._checked(examples, rows)
        if batch_size < 1:
            raise ConfigError(f"batch_size is {batch_size}; expected 1 or more.")
        if self._moved is not None:
            _copy_at(self._moved.add(examples, rows), self.weights, self._before)
        given, own = (*examples[:4], rows), (self.weights, self._decays, self._is_logistic)
        if batch_size == 1:
            _step_singly(*given, f32(lr), *own)
        else:
            _step_batches(*given, batch_size, f32(lr), *own, self._is_mean, self._sums)

    def moves(self) -> Sparse:
        """What the steps since the last call have added to the weights; coordinates that did not change are left out.
        Weights that came in meanwhile (`rebase`) don't count."""
        places = self._tracked().take()
        return _sparse(places, self.weights[places] - self._before[places], len(self.weights))

    def rebase(self, places: Places, values: Vector) -> None:
        """Takes over weights of these features from outside, and puts on top what `moves` has not handed out yet.
        That they are features of the model is not checked."""
        check_lengths(places, values)
        _rebase(places, values, self._tracked().has, self._before, self.weights)

    def _tracked(self) -> "_Support":
        assert self._moved is not None, "a model that tells its moves needs tracks=True"
        return self._moved

    def _checked(self, examples: Examples, rows: Longs) -> Longs:
        """The rows as the loops take them; compiled loops would read past the end."""
        if examples.width != len(self.weights):
            raise DataError(
                f"The rows have {examples.width:,} features, the model {len(self.weights):,}; both must be alike."
            )
        return _within(examples, rows)


class _Support:
    """Which features some rows have."""

    def __init__(self, width: int) -> None:
        self.has = np.zeros(width, np.bool_)
        self._found = np.empty(width, np.uint32)
        self._count = 0

    def add(self, examples: Examples, rows: Longs) -> Features:
        """Takes note of the rows' features; those that were not there yet, in no order."""
        before = self._count
        self._count = int(_add_support(*examples[:3], rows, self.has, self._found, before))
        return self._found[before : self._count]

    def take(self) -> Places:
        """All features noted; then there are none."""
        found = np.sort(self._found[: self._count]).astype(np.int64)
        self.has[found] = False
        self._count = 0
        return found


def margins(examples: Examples, weights: Vector, rows: Longs | None = None) -> Vector:
    """x.w of these rows, by default all; above 0 means +1."""
    if examples.width != len(weights):
        raise DataError(f"The rows have {examples.width:,} features, the model {len(weights):,}; both must be alike.")
    rows = _within(examples, examples.every() if rows is None else rows)
    found = np.empty(len(rows), f32)
    _margins(*examples[:3], rows, weights, found)
    return found


def score(examples: Examples, weights: Vector, objective: Objective, rows: Longs | None = None) -> Score:
    """Loss and hits of the weights on these rows, by default all. DataError where there is none."""
    found = margins(examples, weights, rows)
    labels = examples.labels if rows is None else examples.labels[rows]
    if not len(labels):
        raise DataError("There are no rows to score; expected at least one.")
    wide = weights.astype(np.float64)
    loss, penalty = float(objective.losses(labels, found).mean()), objective.lam / 2 * float(wide @ wide)
    return Score(loss, penalty, *Hits.of(labels, found))


def _sparse(places: Places, values: Vector, width: int) -> Sparse:
    changed = values != 0
    return Sparse(places, values, width) if changed.all() else Sparse(places[changed], values[changed], width)


def _within(examples: Examples, rows: Longs) -> Longs:
    rows = np.ascontiguousarray(rows, np.int64)
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(examples):
        raise DataError(
            f"Rows {rows.min():,} to {rows.max():,} were asked for, but there are {len(examples):,}, from 0."
        )
    return rows


def _check_rows(starts: Longs, indices: npt.NDArray[Any], values: npt.NDArray[Any], width: int) -> None:
    if len(indices) != len(values) or starts[0] != 0 or starts[-1] != len(indices) or (np.diff(starts) < 0).any():
        raise DataError(
            "The sparse rows don't fit together: indptr must rise from 0 to the number of indices and values."
        )
    if len(indices) and not 0 <= indices.min() <= indices.max() < width:
        raise DataError(
            f"The sparse rows have indices {indices.min():,} to {indices.max():,}, but {width:,} features, from 0."
        )


def _signs(labels: npt.NDArray[Any], positive: int | None) -> Vector:
    if labels.ndim != 1 or labels.dtype.kind not in "biu":
        raise DataError(
            f"The labels are {labels.dtype} of shape {labels.shape}; expected one class number for each row."
        )
    if positive is None and len(labels) and not 0 <= labels.min() <= labels.max() <= 1:
        raise DataError(
            f"The labels are classes {labels.min()} to {labels.max()}; expected 0 and 1. Name the class that is to be told "
            "from the rest as `positive`."
        )
    return np.where(labels == (1 if positive is None else positive), f32(1), f32(-1))


_rows_in = (_longs, _features, floats, floats, _longs)


_AHEAD = 2
"""Rows that are asked for before their turn."""
_LINE = 16
"""float32 values or features in a cache line."""


@inner_kernel(nothing(_longs, _features, floats, _longs, types.int64))
def _ask_for(starts: Longs, indices: Features, values: Vector, rows: Longs, at: int) -> None:
    """Begins to load rows[at], if there is one: half of the time of a pass in random order went into waiting for rows."""
    if at < len(rows):
        row = rows[at]
        for j in range(starts[row], starts[row + 1], _LINE):
            prefetch(indices, j)
            prefetch(values, j)


@inner_kernel(types.float64(_longs, _features, floats, types.int64, floats))
def _margin(starts: Longs, indices: Features, values: Vector, row: int, weights: Vector) -> float:
    """x.w in four sums, since each addition waits for the one before it."""
    first, last = starts[row], starts[row + 1]
    full = first + (last - first) // 4 * 4
    a = b = c = d = 0.0
    for j in range(first, full, 4):
        a += weights[indices[j]] * values[j]
        b += weights[indices[j + 1]] * values[j + 1]
        c += weights[indices[j + 2]] * values[j + 2]
        d += weights[indices[j + 3]] * values[j + 3]
    for j in range(full, last):
        a += weights[indices[j]] * values[j]
    return (a + b) + (c + d)


@inner_kernel(scalar(scalar, types.float64, types.boolean))
def _slope(label: f32, margin: float, is_logistic: bool) -> f32:
    """The derivative of the loss by the margin."""
    if is_logistic:
        return f32(-label / (1.0 + np.exp(label * margin)))
    return f32(-label) if label * margin < 1 else f32(0)


@kernel(nothing(_longs, _features, floats, _longs, floats, floats_out))
def _margins(starts: Longs, indices: Features, values: Vector, rows: Longs, weights: Vector, out: Vector) -> None:
    for at in range(len(rows)):
        _ask_for(starts, indices, values, rows, at + _AHEAD)
        out[at] = _margin(starts, indices, values, rows[at], weights)


@kernel(types.int64(_longs, _features, floats, _longs, _flags_out, _features_out, types.int64))
def _add_support(
    starts: Longs, indices: Features, values: Vector, rows: Longs,
    has: npt.NDArray[np.bool_], found: Features, count: int,
) -> int:  # fmt: skip
    for at in range(len(rows)):
        _ask_for(starts, indices, values, rows, at + _AHEAD)
        row = rows[at]
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            if not has[k]:
                has[k] = True
                found[count] = k
                count += 1
    return count


@kernel(nothing(_features, floats, floats_out))
def _copy_at(features: Features, weights: Vector, before: Vector) -> None:
    for at in range(len(features)):
        before[features[at]] = weights[features[at]]


@kernel(nothing(_longs, floats, _flags, floats_out, floats_out))
def _rebase(places: Places, values: Vector, has: npt.NDArray[np.bool_], before: Vector, weights: Vector) -> None:
    """What has moved since `before` moves on from the new values."""
    for at in range(len(places)):
        k, value = places[at], values[at]
        weights[k] = value + (weights[k] - before[k]) if has[k] else value
        before[k] = value


@inner_kernel(nothing(*_rows_in, floats, floats, types.boolean, floats_out))
def _add_gradient(
    starts: Longs, indices: Features, values: Vector, labels: Vector, rows: Longs,
    weights: Vector, decays: Vector, is_logistic: bool, sums: Vector,
) -> None:  # fmt: skip
    """sums <- sums + the gradients of the rows."""
    own = len(decays) > 1
    pulls = own or decays[0] > 0
    for at in range(len(rows)):
        _ask_for(starts, indices, values, rows, at + _AHEAD)
        row = rows[at]
        slope = _slope(labels[row], _margin(starts, indices, values, row, weights), is_logistic)
        if slope == 0 and not pulls:
            continue
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            sums[k] += slope * values[j] + decays[k if own else 0] * weights[k]


@kernel(nothing(*_rows_in, scalar, floats_out, floats, types.boolean))
def _step_singly(
    starts: Longs, indices: Features, values: Vector, labels: Vector, rows: Longs,
    lr: f32, weights: Vector, decays: Vector, is_logistic: bool,
) -> None:  # fmt: skip
    """A step for each row."""
    own = len(decays) > 1
    pulls = own or decays[0] > 0
    for at in range(len(rows)):
        _ask_for(starts, indices, values, rows, at + _AHEAD)
        row = rows[at]
        slope = _slope(labels[row], _margin(starts, indices, values, row, weights), is_logistic)
        if slope == 0 and not pulls:
            continue
        for j in range(starts[row], starts[row + 1]):
            k = indices[j]
            weight = weights[k]
            weights[k] = weight - lr * (slope * values[j] + decays[k if own else 0] * weight)


@kernel(nothing(*_rows_in, types.int64, scalar, floats_out, floats, types.boolean, types.boolean, floats_out))
def _step_batches(
    starts: Longs, indices: Features, values: Vector, labels: Vector, rows: Longs,
    batch_size: int, lr: f32, weights: Vector, decays: Vector, is_logistic: bool, is_mean: bool, sums: Vector,
) -> None:  # fmt: skip
    """A step for each batch. `sums` (D,) is 0 before and after."""
    for start in range(0, len(rows), batch_size):
        batch = rows[start : start + batch_size]
        _add_gradient(starts, indices, values, labels, batch, weights, decays, is_logistic, sums)
        rate = lr / f32(len(batch)) if is_mean else lr
        for at in range(len(batch)):
            row = batch[at]
            for j in range(starts[row], starts[row + 1]):
                k = indices[j]
                weights[k] -= rate * sums[k]
                sums[k] = 0
