"""Examples as a task hands them over: features, labels, and which of them are kept for which purpose."""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError
from paceline.data.columns import Columns
from paceline.data.out_of_core import is_mapped, ranges, release, row_bytes
from paceline.data.row_weights import checked_weights

Array = npt.NDArray[Any]
Rows = npt.NDArray[np.int64]
PartName = Literal["validation", "test"]
SetName = Literal["train", "test", "validation"]
SPARSE_ROW = 1 << 10
"""Bytes that a sparse row is taken to have where pieces are cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Examples with their labels, checked so that nobody downstream must: features (N, ...), a numpy array or a
    scipy.sparse.csr_array (N, D), whose rows are sorted here and hold no index twice, and labels (N, ...). Whole-number
    labels in one column are classes. DataError where the arrays can't be training data; whether those mapped from a file
    hold NaN is known only when `Dataset.digest` has read them."""

    features: Any
    labels: Array
    weights: Array | None = None
    """How much each example counts (N,), kept as float32: one of weight 2 counts as two, one of 0 not at all; None: all
    alike. For linear models only."""

    def __post_init__(self) -> None:
        for name, array in (("features", self.features), ("labels", self.labels)):
            _check_kind(name, array)
        if is_sparse(self.features):
            object.__setattr__(self, "features", _in_order(self.features))
        if self.features.shape[0] != len(self.labels):
            raise DataError(
                f"There are {self.features.shape[0]:,} rows of features but {len(self.labels):,} labels; "
                "every example needs one of each."
            )
        if not len(self.labels):
            raise DataError("There are no examples; expected at least one row.")
        for name, array in (("features", self.features), ("labels", self.labels)):
            if not is_mapped(values_of(array)):
                _check_finite(name, array, 0)
        if self.weights is not None:
            object.__setattr__(self, "weights", checked_weights(self.weights, len(self.labels)))

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def classes(self) -> Rows | None:
        """Each example's class; None where labels are not classes."""
        return self.labels.astype(np.int64) if is_class_label(self.labels) else None

    def pieces(self) -> Iterator[tuple[int, int]]:
        """(start, stop) of rows that are read at a time."""
        return ranges(len(self), SPARSE_ROW if is_sparse(self.features) else row_bytes(self.features))

    def release(self) -> None:
        """Gives back the memory of what was read from mapped files."""
        release_features(self.features)
        release(self.labels)


class Piece(NamedTuple):
    """Some rows of one of the sets."""

    part: SetName
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """All examples of a task. Where it brings no test or validation set, `split` cuts one from `train`."""

    train: Labelled
    test: Labelled | None = None
    validation: Labelled | None = None
    classes: tuple[str, ...] | None = field(default=None, kw_only=True)
    """What class 0, 1 and so on are called, where labels are classes with names."""
    columns: Columns | None = field(default=None, kw_only=True)
    """What the features mean, where they come from a table."""
    as_read: tuple[str, ...] = field(default=(), kw_only=True)
    """How the examples were read, in lines for people."""

    def __post_init__(self) -> None:
        if self.classes is not None:
            self._check_classes(self.classes)
        for name, part in self.sets():
            if part.features.shape[1:] != self.train.features.shape[1:]:
                raise DataError(
                    f"The examples of the {name} set have shape {part.features.shape[1:]}, but those of the "
                    f"training set {self.train.features.shape[1:]}; both must have the same shape."
                )
            if is_sparse(part.features) != is_sparse(self.train.features):
                raise DataError(
                    f"The {name} set or the training set is sparse and the other is not; make both sparse or both "
                    "dense."
                )

    def _check_classes(self, names: tuple[str, ...]) -> None:
        for name, part in self.sets():
            if not is_class_label(part.labels):
                raise DataError(
                    f"The classes have names, but the labels of the {name} set are not classes. Give whole numbers "
                    "from 0."
                )
            low, high = int(part.labels.min()), int(part.labels.max())
            if low < 0 or high >= len(names):
                raise DataError(
                    f"The {name} set has labels from {low} to {high}, but there are names for only {len(names)} "
                    "classes, numbered from 0."
                )

    def sets(self) -> list[tuple[SetName, Labelled]]:
        """The sets that it has, by name."""
        every: tuple[tuple[SetName, Labelled | None], ...] = (
            ("train", self.train),
            ("test", self.test),
            ("validation", self.validation),
        )
        return [(name, part) for name, part in every if part is not None]

    def pieces(self) -> list[Piece]:
        """All examples, in parts that are checked and hashed one by one."""
        return [Piece(name, *rows) for name, part in self.sets() for rows in part.pieces()]

    def piece_digest(self, piece: Piece) -> bytes:
        """SHA-256 of a piece's examples. DataError where they hold NaN or infinity. Thread-safe."""
        part: Labelled = getattr(self, piece.part)
        total = hashlib.sha256()
        both: tuple[tuple[str, Any], ...] = (("features", part.features), ("labels", part.labels))
        for name, array in both:
            rows = array[piece.start : piece.stop]
            if is_mapped(values_of(array)):
                _check_finite(name, rows, piece.start)
            where = (rows.indptr.astype(np.int64), rows.indices.astype(np.int64)) if is_sparse(rows) else ()
            for flat in (*where, values_of(rows)):
                total.update(np.ascontiguousarray(flat).data)
        part.release()
        return total.digest()

    def digest(self, pieces: Iterable[bytes] | None = None) -> str:
        """SHA-256 that tells whether shards were made from this very data. `pieces`: the digests of all pieces where they
        are known. DataError as for `piece_digest`."""
        total = hashlib.sha256()
        for name, part in self.sets():
            for array in (part.features, part.labels):
                total.update(f"{name}{array.dtype.str}{array.shape}{is_sparse(array)}".encode())
            if part.weights is not None:
                total.update(b"weights" + part.weights.data)
        if self.classes is not None or self.columns is not None:
            total.update(f"{self.classes}{self.columns and self.columns.model_dump_json()}".encode())
        for digest in pieces if pieces is not None else map(self.piece_digest, self.pieces()):
            total.update(digest)
        return total.hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """Some rows of a set, not copied before they are asked for. Ids number the examples of the whole data set, training
    rows first, then test, then validation rows: `first_id` is that of the set's row 0; `own_ids` are those of all its
    rows, where they don't follow one another."""

    source: Labelled
    rows: Rows
    first_id: int = 0
    own_ids: Rows | None = None

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def features(self) -> Any:
        found = self.source.features[self.rows]
        return found if is_sparse(found) else np.ascontiguousarray(found)

    @property
    def labels(self) -> Array:
        return np.ascontiguousarray(self.source.labels[self.rows])

    @property
    def weights(self) -> Array | None:
        return None if self.source.weights is None else self.source.weights[self.rows]

    @property
    def ids(self) -> Rows:
        own = self.rows + self.first_id if self.own_ids is None else self.own_ids[self.rows]
        return own.astype(np.int64)

    def pick(self, positions: Rows) -> "Selection":
        """Those of the selected rows that are at these positions in it."""
        return Selection(self.source, self.rows[positions], self.first_id, self.own_ids)


def is_class_label(labels: Array) -> bool:
    """Whether the labels are classes: one whole number for each example."""
    return labels.ndim == 1 and labels.dtype.kind in "biu"


def is_sparse(features: Any) -> bool:
    """Whether the features are sparse rows and no numpy array."""
    return not isinstance(features, np.ndarray) and hasattr(features, "indptr")


def dense(features: Any) -> Array:
    """The same rows as an array that holds the zeros too, for models that know no sparse rows."""
    found: Array = features.toarray() if is_sparse(features) else features
    return found


def release_features(features: Any) -> None:
    """`release` for rows of either form."""
    for array in (features.indptr, features.indices, features.data) if is_sparse(features) else (features,):
        release(array)


def values_of(features: Any) -> Array:
    """The array that holds the features' values: all of them, or those of sparse rows that are not zero."""
    found: Array = features.data if is_sparse(features) else features
    return found


def _check_kind(name: str, array: Any) -> None:
    sparse = is_sparse(array)
    if not (sparse or isinstance(array, np.ndarray)) or array.ndim == 0 or array.dtype.kind not in "biuf":
        seen = f"an array of {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        raise DataError(f"The {name} are {seen}; expected a numpy array of numbers with one row for each example.")
    if sparse and (name == "labels" or array.format != "csr"):
        raise DataError(
            f"The {name} are a sparse matrix in {array.format} form; labels are dense, and features need csr: call tocsr()."
        )


def _in_order(rows: Any) -> Any:
    """The sparse rows with rising indices. DataError where an index comes twice in a row."""
    if rows.has_canonical_format:
        return rows
    found = rows.sorted_indices()
    if not found.has_canonical_format:
        twice = np.flatnonzero(np.diff(found.indices) == 0) + 1
        place = int(np.setdiff1d(twice, found.indptr)[0])
        row = int(np.searchsorted(found.indptr, place, "right")) - 1
        raise DataError(
            f"The features of example {row:,} are sparse and have column {found.indices[place]:,} twice: call "
            "sum_duplicates(), or correct the example."
        )
    return found


def _check_finite(name: str, array: Any, first: int) -> None:
    """DataError where these rows, of which the first has the number `first`, hold NaN or infinity."""
    values = values_of(array)
    if values.dtype.kind != "f" or np.isfinite(values).all():
        return
    bad = ~np.isfinite(values)
    row = (
        int(np.searchsorted(array.indptr, np.argmax(bad), "right")) - 1
        if is_sparse(array)
        else int(np.argmax(bad.reshape(len(array), -1).any(axis=1)))
    )
    raise DataError(f"The {name} of example {first + row:,} hold NaN or infinity; correct or remove the example.")
