"""Shards as workers and evaluators read them: memory-mapped, and never taken for whole when they are damaged."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, PartName, Rows
from paceline.data.manifest import FILES, FIX, MANIFEST, FileEntry, Manifest, ShardEntry, read_manifest


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A part of the data: features (N, ...), labels (N, ...) and the examples' ids (N,), mapped read-only."""

    features: Array
    labels: Array
    ids: Rows

    def __len__(self) -> int:
        return len(self.ids)


class Shards:
    """A folder of shards whose files are all there and have the right size."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    def __len__(self) -> int:
        return len(self.manifest.shards)

    def shard(self, number: int) -> Shard:
        """Shard `number`, from 0."""
        return self._open(f"shard-{number}")

    def part(self, name: PartName) -> Shard:
        """The validation or test examples."""
        return self._open(name)

    def verify(self, which: int | PartName) -> None:
        """Compares a shard's or part's checksums with the manifest; reads all of it. DataError names the bad file."""
        name = f"shard-{which}" if isinstance(which, int) else which
        for file, entry in self._entry(name).files.items():
            path = self.folder / name / f"{file}.npy"
            try:
                with path.open("rb") as stream:
                    digest = hashlib.file_digest(stream, "sha256").hexdigest()
            except OSError as error:
                raise DataError(f"Can't read {path}: {error.strerror}. {FIX}") from error
            if digest != entry.sha256:
                raise DataError(
                    f"{path} is damaged: its checksum is {digest[:12]}, expected {entry.sha256[:12]}. {FIX}"
                )

    def _entry(self, name: str) -> ShardEntry:
        entries = self.manifest.entries()
        if name not in entries:
            if name.startswith("shard-"):
                raise DataError(f"There is no {name} in {self.folder}; it holds shard-0 to shard-{len(self) - 1}.")
            raise DataError(f"{self.folder} holds no {name} examples. Set data.{name} above 0. {FIX}")
        return entries[name]

    def _open(self, name: str) -> Shard:
        entry = self._entry(name)
        return Shard(*(_map(self.folder / name / f"{file}.npy", entry.files[file]) for file in FILES))


def is_there(folder: Path) -> bool:
    """Whether a sharder has finished this folder: what a worker waits for."""
    return (folder / MANIFEST).is_file()


def open_shards(folder: Path) -> Shards:
    """The shards in the folder, nothing mapped yet. DataError where the manifest is missing or damaged, or where a
    file's size is not the manifest's."""
    manifest = read_manifest(folder)
    for name, entry in manifest.entries().items():
        for file in FILES:
            _check_size(folder / name / f"{file}.npy", entry.files[file])
    return Shards(folder, manifest)


def take(shards: Sequence[Shard], which: Rows, rows: Rows) -> tuple[Array, Array]:
    """Features and labels of some examples, copied out of several shards: the k-th is row rows[k] of shard which[k]."""
    if len(shards) == 1:
        return shards[0].features[rows], shards[0].labels[rows]
    features = np.empty((len(rows), *shards[0].features.shape[1:]), shards[0].features.dtype)
    labels = np.empty((len(rows), *shards[0].labels.shape[1:]), shards[0].labels.dtype)
    for number, shard in enumerate(shards):
        here = which == number
        features[here], labels[here] = shard.features[rows[here]], shard.labels[rows[here]]
    return features, labels


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} is missing or can't be read: {error.strerror}. {FIX}") from error
    if size != entry.bytes:
        raise DataError(f"{path} is damaged: it has {size:,} bytes, expected {entry.bytes:,}. {FIX}")


def _map(path: Path, entry: FileEntry) -> Array:
    _check_size(path, entry)
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy's header parser lets many kinds through
        raise DataError(f"{path} is damaged: {error}. {FIX}") from error
    if not isinstance(array, np.ndarray) or (array.dtype.str, array.shape) != (entry.dtype, entry.shape):
        raise DataError(f"{path} is damaged: it is not an array of {entry.dtype} with shape {entry.shape}. {FIX}")
    return array
