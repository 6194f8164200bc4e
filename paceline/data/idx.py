"""Reads MNIST, and what is published in its form (Fashion-MNIST): four idx files, gzipped or not."""

import gzip
import math
from pathlib import Path
from typing import BinaryIO

import numpy as np

from paceline.base.bounded import read_most
from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import folder_at, plain_or_packed, reading

WHERE = (
    "Get train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz and "
    "t10k-labels-idx1-ubyte.gz from https://yann.lecun.com/exdb/mnist/ or its mirror "
    "https://ossci-datasets.s3.amazonaws.com/mnist/ (names as these), into one folder."
)
SIDE = 28
CLASSES = 10
MAX_BYTES = 1 << 30
"""Most that one file may hold (bytes), twenty times the official data."""


def read_mnist(folder: str | Path) -> Dataset:
    """Training and test images, features uint8 (N, 28, 28), labels int64 (N,), from a folder with the four files; any
    number of examples will do. DataError where a file is missing, truncated, too long or not MNIST."""
    folder = folder_at(folder, WHERE)
    names = tuple(map(str, range(CLASSES)))
    return Dataset(train=_part(folder, "train"), test=_part(folder, "t10k"), classes=names)


def _part(folder: Path, name: str) -> Labelled:
    """The images of one half with their labels."""
    file = _find(folder, f"{name}-images-idx3-ubyte")
    images = _read(file, 3)
    if images.shape[1:] != (SIDE, SIDE):
        raise DataError(
            f"The images of {file} are {images.shape[1]}x{images.shape[2]}; expected {SIDE}x{SIDE}. {WHERE}"
        )
    file = _find(folder, f"{name}-labels-idx1-ubyte")
    labels = _read(file, 1).astype(np.int64)
    if len(labels) != len(images):
        raise DataError(f"{file} has {len(labels):,} labels for {len(images):,} images. {WHERE}")
    if labels.max(initial=0) >= CLASSES:
        row = int(np.argmax(labels >= CLASSES))
        raise DataError(f"Label {row:,} of {file} is {labels[row]}; expected 0 to {CLASSES - 1}. {WHERE}")
    return Labelled(images, labels)


def _find(folder: Path, name: str) -> Path:
    """The file, gzipped or not."""
    with reading(folder, WHERE):
        found = plain_or_packed(folder, name)
    if found is None:
        raise DataError(f"{folder} lacks {name} (or {name}.gz). {WHERE}")
    return found


def _read(file: Path, dimensions: int) -> Array:
    """The bytes of one idx file as an array; its content says whether it is gzipped."""
    with reading(file, f"The file may be damaged. {WHERE}"):
        with file.open("rb") as stream:
            zipped = stream.read(2) == b"\x1f\x8b"
        with file.open("rb") as raw, gzip.open(raw) if zipped else raw as stream:
            return _parse(stream, file, dimensions)


def _parse(stream: "BinaryIO | gzip.GzipFile", file: Path, dimensions: int) -> Array:
    """Header (two zero bytes, type 8 = uint8, dimensions; big-endian sizes), then exactly as many bytes as it says."""
    header = stream.read(4 + 4 * dimensions)
    expected = bytes((0, 0, 8, dimensions))
    if len(header) < 4 + 4 * dimensions or header[:4] != expected:
        raise DataError(
            f"{file} starts with {header[:4].hex() or 'nothing'}; an idx file of bytes with {dimensions} dimensions "
            f"starts with {expected.hex()}. {WHERE}"
        )
    shape = tuple(int(size) for size in np.frombuffer(header, ">u4", offset=4))
    size = math.prod(shape)
    if size > MAX_BYTES:
        raise DataError(f"{file} claims {size:,} bytes; the limit is {MAX_BYTES:,}. {WHERE}")
    content = read_most(stream, size + 1)  # one more than there should be, which also makes gzip check its checksum
    if len(content) != size:
        seen = f"only {len(content):,}" if len(content) < size else "more"
        raise DataError(f"{file} claims {size:,} bytes after its header but has {seen}; it is damaged. {WHERE}")
    return np.frombuffer(content, np.uint8).reshape(shape)
