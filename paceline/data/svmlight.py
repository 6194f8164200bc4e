"""Reads LIBSVM's text form (svmlight): a line for each example, its label and then 'index:value' of what is not zero."""

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.classes import number_classes
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, opened, reading

EXPECTED = "Expected LIBSVM text: lines like '+1 3:0.5 7:1', indices rising."
MAX_BYTES = 4 << 30
"""Most that the examples may take as dense rows (bytes): a few wide sparse lines would fill any memory."""


def read_svmlight(
    path: str | Path, test: str | Path | None = None, features: int | None = None, classes: bool = True
) -> Dataset:
    """Dense float32 features (N, features), labels as class numbers from 0 in rising order (-1 and +1 become 0 and 1), or
    float32 as they are where `classes` is false. Indices count from 0 if one is 0, else from 1; `features` is the largest
    index that may occur, by default the largest that does in either file. .gz, .bz2 and .xz are unpacked. DataError: a
    damaged file, or more than 4 GiB as dense rows."""
    files = [at(file) for file in (path, test) if file is not None]
    names = " and ".join(map(str, files))
    with reading(names, EXPECTED), ExitStack() as stack:
        from sklearn.datasets import load_svmlight_files

        streams = [stack.enter_context(opened(file)) for file in files]
        found: list[Any] = load_svmlight_files(streams, n_features=features)
    rows, columns = sum(part.shape[0] for part in found[::2]), found[0].shape[1]
    if rows * columns * 4 > MAX_BYTES:
        raise DataError(
            f"{names} has {rows:,} examples of {columns:,} features, {rows * columns * 4:,} bytes as dense rows; the limit "
            f"is {MAX_BYTES:,}. Keep fewer features, or fewer examples."
        )
    labels: list[Array] = found[1::2]
    labels = (
        list(number_classes(labels, f"The label of {names}")) if classes else [y.astype(np.float32) for y in labels]
    )
    return Dataset(*(Labelled(_dense(part), own) for part, own in zip(found[::2], labels, strict=True)))


def _dense(part: Any) -> Array:
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite, which Labelled refuses
        dense: Array = part.astype(np.float32).toarray()
    return dense
