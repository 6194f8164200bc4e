"""Reads examples from numpy's own files: arrays with names in an .npz, or an .npy for the features and one for the
labels. Pickled objects are never loaded, since loading them runs code."""

import io
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib.format import MAGIC_PREFIX, read_array_header_1_0, read_array_header_2_0, read_magic

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import MOST_UNPACKED, at, reading

Names = tuple[str, str]
"""The names of the features and the labels."""
_MOST_HEADER = 12 + (1 << 16)
"""Longest header of an npy file (bytes)."""
_FORMS: dict[tuple[int, int], Callable[[Any], tuple[tuple[int, ...], bool, "np.dtype[Any]"]]] = {
    (1, 0): read_array_header_1_0,
    (2, 0): read_array_header_2_0,
}
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
        found = loaded(stream)
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
    return Labelled(array_in(found, features), array_in(found, labels))


def loaded(stream: BinaryIO) -> Any:
    """What numpy loads: the array of an npy file; of an npz file a mapping, for `array_in`. ValueError: the header of an npy
    claims more than the file holds, which numpy would allocate."""
    check_npy(stream)
    return np.load(stream, allow_pickle=False)


def check_npy(stream: BinaryIO) -> None:
    """ValueError: it is an npy file whose header claims more than the file holds."""
    is_npy = stream.read(len(MAGIC_PREFIX)) == MAGIC_PREFIX
    stream.seek(0)
    if is_npy:
        _check_claim("its header", *_npy_header(stream), stream.seek(0, os.SEEK_END))
        stream.seek(0)


def array_in(found: Any, name: str) -> Array:
    """One array of an npz file. ValueError: it claims more than the file holds, as in `loaded`."""
    member = name if name in found.zip.namelist() else f"{name}.npy"
    packed = found.zip.getinfo(member)
    if packed.file_size > MOST_UNPACKED * packed.compress_size:
        raise ValueError(f"{member} claims {packed.file_size:,} bytes, packed in {packed.compress_size:,}")
    with found.zip.open(packed) as stream:
        _check_claim(member, *_npy_header(stream), packed.file_size)
    array: Array = found[name]
    return array


def _check_claim(what: str, shape: tuple[int, ...], kind: "np.dtype[Any]", size: int) -> None:
    if (claimed := math.prod(shape) * kind.itemsize) > size:
        raise ValueError(f"{what} claims an array of {claimed:,} bytes in a file of {size:,}")


def _npy_header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type that an npy file begins with. ValueError: it is none, or holds Python objects."""
    head = io.BytesIO(stream.read(_MOST_HEADER))  # numpy reads as much as the header claims to have
    version = read_magic(head)
    if version not in _FORMS:
        raise ValueError(f"its form {version} is not known")
    shape, _, kind = _FORMS[version](head)
    if kind.hasobject or any(size < 0 for size in shape):
        raise ValueError("it holds Python objects, or sizes below 0")
    return shape, kind


def mapped(path: str | Path) -> Array:
    """The array of an npy file; on a mounted volume it is not read into memory."""
    path = at(path)
    is_local = type(path) is type(Path())
    with reading(path, EXPECTED.format(kind="npy")), path.open("rb") as stream:
        if is_local:
            check_npy(stream)
        found: Any = np.load(path, mmap_mode="r") if is_local else loaded(stream)
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} is not a single array; expected an npy file. Read npz files with read_npz().")
    return found
