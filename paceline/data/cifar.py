"""Reads CIFAR-10 and CIFAR-100 from their official binary versions: records of one or two label bytes and 3,072 pixel
bytes (red, green, blue)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import numpy as np

from paceline.core.errors import DataError
from paceline.data.archive import Source, read_files
from paceline.data.dataset import Array, Dataset, Labelled
from paceline.data.files import at

TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
NAMES = "batches.meta.txt"
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
"""What CIFAR-10's classes are called where no file says it."""
NAMES100 = {"fine": "fine_label_names.txt", "coarse": "coarse_label_names.txt"}
PIXELS = 3 * 32 * 32
_PAGE = "from https://www.cs.toronto.edu/~kriz/cifar.html."
CIFAR10 = Source(
    "CIFAR-10",
    (*TRAIN, TEST),
    "cifar-10-batches-bin",
    f"Get the binary version, cifar-10-binary.tar.gz, {_PAGE}",
    (NAMES,),
)
CIFAR100 = Source(
    "CIFAR-100",
    ("train.bin", "test.bin"),
    "cifar-100-binary",
    f"Get the binary version, cifar-100-binary.tar.gz, {_PAGE}",
    tuple(NAMES100.values()),
)


def read_cifar10(path: str | Path) -> Dataset:
    """Training and test images, features uint8 (N, 3, 32, 32), labels int64 (N,), from a folder or its tar.gz; any
    number of whole records in a file will do. Classes have the names in batches.meta.txt, if it exists. DataError
    where a file is missing, truncated, too big or not CIFAR-10."""
    path = at(path)
    files = read_files(path, CIFAR10)
    batches = [_records(files[name], name, path, CIFAR10, (10,)) for name in TRAIN]
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    test_images, test_labels = _records(files[TEST], TEST, path, CIFAR10, (10,))
    names, told = _named(files, NAMES, 10, CLASSES)
    train, test = Labelled(images, labels[:, 0]), Labelled(test_images, test_labels[:, 0])
    return Dataset(train, test, classes=names, as_read=told)


def read_cifar100(path: str | Path, which: Literal["fine", "coarse"]) -> Dataset:
    """As `read_cifar10`; labels are the 100 fine classes or the 20 coarse ones that hold five of them each. Both give
    the same examples in the same order, so that one may be trained on and the other dealt by."""
    path = at(path)
    files = read_files(path, CIFAR100)
    column = ("coarse", "fine").index(which)
    names, told = _named(files, NAMES100[which], (20, 100)[column])
    parts = [_records(files[name], name, path, CIFAR100, (20, 100)) for name in CIFAR100.files]
    train, test = (Labelled(images, labels[:, column]) for images, labels in parts)
    return Dataset(train=train, test=test, classes=names, as_read=told)


def _named(
    files: Mapping[str, bytes], name: str, count: int, known: tuple[str, ...] | None = None
) -> tuple[tuple[str, ...] | None, tuple[str, ...]]:
    """The names of the classes in the file of that name, one in each line, otherwise those that are `known`; and what to tell
    people of it."""
    if name not in files:
        return known, ()
    found = tuple(line.strip() for line in files[name].decode("utf-8", "replace").splitlines() if line.strip())
    if len(found) == len(set(found)) == count:
        return found, ()
    instead = "their usual names" if known else "numbers"
    return known, (
        f"{name} holds {len(found)} lines; expected {count} different names of classes, which have {instead} instead",
    )


def _records(content: bytes, name: str, path: Path, source: Source, classes: tuple[int, ...]) -> tuple[Array, Array]:
    """(images, labels (N, labels of a record)) of one file; `classes` is how many each of its labels may name."""
    length = len(classes) + PIXELS
    if not content or len(content) % length:
        raise DataError(
            f"{name} in {path} has {len(content):,} bytes, which is not a whole number of records of {length:,} "
            f"bytes; it is truncated or not {source.name}. {source.where}"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, length)
    labels = records[:, : len(classes)].astype(np.int64)
    wrong = np.argwhere(labels >= classes)
    if len(wrong):
        row, column = wrong[0]
        raise DataError(
            f"Record {row:,} of {name} in {path} has label {labels[row, column]}; expected 0 to {classes[column] - 1}. "
            f"{source.where}"
        )
    return records[:, len(classes) :].reshape(-1, 3, 32, 32).copy(), labels
