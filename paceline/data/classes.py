"""Labels as people write them (-1 and +1, names of species) become the class numbers that a loss needs."""

from collections.abc import Sequence

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Rows

_MOST = 2.0**63
NOT = "not {}"
"""The name of all other classes together, where one is trained against them."""


def number_classes(columns: Sequence[Array], what: str) -> tuple[tuple[str, ...], list[Rows]]:
    """What the classes are called, and the labels of several sets as numbers from 0, in sorted order of all labels that
    occur in any of them. DataError where they are no classes: neither text nor whole numbers. `what`: where they are from,
    for people."""
    together = np.concatenate([_comparable(column, what) for column in columns])
    if together.dtype.kind == "O" and len({type(label) for label in together}) > 1:
        raise DataError(f"{what} holds numbers in one set and text in the other; both need labels of the same kind.")
    found, numbers = np.unique(together, return_inverse=True)
    if all(column.dtype.kind == "b" for column in columns):
        found = found.astype(np.bool_)
    starts = np.cumsum([len(column) for column in columns])[:-1]
    return tuple(map(str, found.tolist())), np.split(numbers.astype(np.int64), starts)


def name_of(label: object) -> str:
    """What a label is called that may have been read as a fraction: 1000001, neither 1000001.0 nor 1e+06."""
    if not isinstance(label, float):
        return str(label)
    return f"{label:.0f}" if label.is_integer() else f"{label:g}"


def if_numbers(labels: Array | None = None) -> str:
    """What to say behind an error about classes: the labels may be no classes but whole numbers to predict."""
    seen = "" if labels is None else f", {len(np.unique(labels)):,} different whole numbers,"
    return (
        f" If the labels{seen} are no classes but numbers to predict (a regression), give them as floats: "
        "labels.astype('float32') in data(), or read_table(..., classes=False)."
    )


def _comparable(column: Array, what: str) -> Array:
    """The labels as int64, or as an array of str."""
    if column.dtype.kind in "biu":
        return column.astype(np.int64)
    if column.dtype.kind == "f":
        bad = ~np.isfinite(column) | (column != np.round(column)) | (np.abs(column) >= _MOST)
        if not bad.any():
            return column.astype(np.int64)
        raise DataError(
            f"{what} holds {column[bad][0]:g}; expected whole numbers below 2^63 or text as classes. For a regression give "
            "classes=False."
        )
    strange = next((label for label in column if not isinstance(label, str)), None)
    if strange is not None:
        raise DataError(f"{what} holds {strange!r}; expected whole numbers or text as classes.")
    return column.astype(object)
