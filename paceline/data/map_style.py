"""Reads a map-style data set of torch row by row, once; the code that made it imports torch, not this module."""

from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.out_of_core import Growing, ranges


def is_map_style(found: Any) -> bool:
    """Whether it has a length and rows by number, and is neither an array nor a plain container."""
    if isinstance(found, (str, bytes, list, tuple, dict)) or hasattr(found, "shape"):
        return False
    return hasattr(found, "__len__") and hasattr(found, "__getitem__")


def read_map_style(train: Any, test: Any = None) -> Dataset:
    """All rows, each a pair of features and label: torch tensors, numpy arrays, images or numbers, of one shape and type
    throughout. DataError where a row is otherwise."""
    return Dataset(
        read_rows(train, "training set of data()"), None if test is None else read_rows(test, "test set of data()")
    )


def adapted(found: Any) -> Any:
    """A map-style data set, or a pair of them (training, test), as a `Dataset`; anything else as it is."""
    if is_map_style(found):
        return read_map_style(found)
    if isinstance(found, tuple) and len(found) == 2 and all(map(is_map_style, found)):
        return read_map_style(*found)
    return found


def read_rows(source: Any, name: str) -> Labelled:
    """All rows of one set, each a pair of features and label. `name`: what to call it, for people. DataError."""
    count = len(source)
    if not count:
        raise DataError(f"The {name} has no rows.")
    first = _row(source, 0, name)
    columns = [Growing(cell.dtype, cell.shape) for cell in first]
    for start, stop in ranges(count, sum(cell.nbytes for cell in first)):
        blocks = [np.empty((stop - start, *cell.shape), cell.dtype) for cell in first]
        for number in range(start, stop):
            for block, cell in zip(blocks, _row(source, number, name), strict=True):
                if (cell.shape, cell.dtype) != (block.shape[1:], block.dtype):
                    raise DataError(
                        f"Row {number:,} of the {name} holds {cell.dtype} of shape {cell.shape}, but row 0 "
                        f"{block.dtype} of shape {block.shape[1:]}; all rows must have the same shape and type."
                    )
                block[number - start] = cell
        for column, block in zip(columns, blocks, strict=True):
            column.append(block)
    return Labelled(*(column.array() for column in columns))


def _row(source: Any, number: int, name: str) -> tuple[Array, Array]:
    row = source[number]
    if not isinstance(row, (tuple, list)) or len(row) != 2:
        raise DataError(f"Row {number:,} of the {name} is {type(row).__name__}; expected a pair of features and label.")
    features, label = (np.asarray(cell) for cell in row)
    return features, label
