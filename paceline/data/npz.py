"""Reads examples from numpy's own files: arrays with names in an .npz, or an .npy for the features and one for the
labels. Pickled objects are never loaded, since loading them runs code."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at, reading

Names = tuple[str, str]
"""The names of the features and the labels."""
EXPECTED = "The file is damaged, no {kind} file, or holds Python objects, which are refused: save arrays of numbers."


def read_npz(
    path: str | Path,
    train: Names = ("features", "labels"),
    test: Names | None = None,
    validation: Names | None = None,
) -> Dataset:
    """The arrays of these names, with their shapes and types; names not asked for are not read. DataError where one is
    missing or holds Python objects, or where the file is damaged."""
    path = at(path)
    with reading(path, EXPECTED.format(kind="npz")), path.open("rb") as stream:
        found: Any = np.load(stream, allow_pickle=False)
        if not isinstance(found, Mapping):
            raise DataError(f"{path} is a single array; expected an npz file. Read npy files with read_npy().")
        own = [names and _labelled(found, names, path) for names in (test, validation)]
        return Dataset(_labelled(found, train, path), *own)


def read_npy(features: str | Path, labels: str | Path, test: tuple[str | Path, str | Path] | None = None) -> Dataset:
    """The arrays of two files, and of two more for testing; files on a mounted volume are mapped, so they may be larger
    than memory."""
    return Dataset(Labelled(mapped(features), mapped(labels)), test and Labelled(*map(mapped, test)))


def _labelled(found: Mapping[str, Array], names: Names, path: Path) -> Labelled:
    for name in names:
        if name not in found:
            raise DataError(f"{path} has no array {name!r}; it holds {', '.join(sorted(found)) or 'nothing'}.")
    features, labels = names
    return Labelled(found[features], found[labels])


def mapped(path: str | Path) -> Array:
    """The array of an npy file; on a mounted volume it is not read into memory."""
    path = at(path)
    is_local = type(path) is type(Path())
    with reading(path, EXPECTED.format(kind="npy")), path.open("rb") as stream:
        found: Any = np.load(path, mmap_mode="r") if is_local else np.load(stream, allow_pickle=False)
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} is not a single array; expected an npy file. Read npz files with read_npz().")
    return found
