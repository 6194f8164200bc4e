"""Shards as workers and evaluators read them: memory-mapped, and never taken for whole when they are damaged."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, PartName, Rows, is_sparse
from paceline.data.manifest import FIX, MANIFEST, OWN, FileEntry, FileName, Manifest, ShardEntry, read_manifest
from paceline.data.npz import check_npy
from paceline.data.sampler import locate, starts_of


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """A part of the data: features (N, ...), a numpy array or a scipy.sparse.csr_array (N, D), labels (N, ...) and the
    examples' ids (N,), mapped read-only."""

    features: Any
    labels: Array
    ids: Rows
    weights: Array | None = None
    """What each counts (N,); None: all alike."""

    def __len__(self) -> int:
        return len(self.ids)


class Shards:
    """A folder of shards whose files all exist and have the right size."""

    shuffle = True
    """Whether a worker takes its examples in a new order in each epoch."""
    fills = False
    """Whether its mini-batches are full but for an epoch's last, instead of nearly equal."""

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

    def ids(self, number: int) -> Rows:
        """The ids of shard `number`'s examples, mapped; nothing else of it is read."""
        return self._map(f"shard-{number}", "ids")

    def rows(self, positions: Rows) -> tuple[Any, Array]:
        """Features and labels of some training examples, copied; `positions`: rising, in the shards laid end to end."""
        everything = [self.shard(number) for number in range(len(self))]
        return take(everything, *locate(starts_of(self.manifest.sizes), positions))

    def weights(self, positions: Rows) -> Array | None:
        """The weights of these training examples, copied; None where they have none. `positions`: in the shards laid end to
        end."""
        if self.manifest.train_weights is None:
            return None
        where, rows = locate(starts_of(self.manifest.sizes), positions)
        found = np.empty(len(positions), np.float32)
        for number in np.unique(where):
            found[where == number] = self._own(int(number), rows[where == number])
        return found

    def feature_counts(self) -> Rows:
        """How many training examples have each feature (D,), those of several shards counted once. Sparse rows only; reads
        the indices of all shards."""
        total = np.zeros(self.manifest.shards[0].columns or 0, np.int64)
        several = np.array(self.manifest.duplicates, np.int64)  # each counts in the first shard that has it
        seen = np.empty(0, np.int64)
        for number in range(len(self)):
            features = self.shard(number).features
            if len(several):
                ids = self.ids(number)
                features = features[np.flatnonzero(~np.isin(ids, seen))]
                seen = np.union1d(seen, ids[np.isin(ids, several)])
            total += np.bincount(features.indices, minlength=len(total))
        return total

    def verify(self, which: int | PartName) -> None:
        """Compares a shard's or part's checksums with the manifest; reads all of it. DataError names the bad file."""
        name = f"shard-{which}" if isinstance(which, int) else which
        for file, entry in self.entry(name).files.items():
            check_file(self.folder / name / f"{file}.npy", entry)

    def entry(self, name: str) -> ShardEntry:
        """What the manifest says of "shard-0", "validation" and so on; DataError where it knows no such thing."""
        entries = self.manifest.entries()
        if name not in entries:
            if name.startswith("shard-"):
                raise DataError(f"There is no {name} in {self.folder}; it holds shard-0 to shard-{len(self) - 1}.")
            raise DataError(f"{self.folder} holds no {name} examples. Set data.{name} above 0. {FIX}")
        return entries[name]

    def _open(self, name: str) -> Shard:
        entry = self.entry(name)
        found = {file: self._map(name, file) for file in entry.files}
        features = found["features"] if entry.columns is None else _csr(found, entry, self.folder / name)
        return Shard(features, found["labels"], found["ids"], found.get(OWN))

    def _own(self, number: int, rows: Rows) -> Array:
        """The weights of these rows of one shard."""
        return self._map(f"shard-{number}", OWN)[rows]

    def _map(self, name: str, file: FileName) -> Array:
        return map_file(self.folder / name / f"{file}.npy", self.entry(name).files[file])


def is_there(folder: Path) -> bool:
    """Whether a sharder has finished this folder: what a worker waits for."""
    return (folder / MANIFEST).is_file()


def open_shards(folder: Path) -> Shards:
    """The shards in the folder, nothing mapped yet. DataError where the manifest is missing or damaged, or where a
    file's size is not the manifest's."""
    manifest = read_manifest(folder)
    for name, entry in manifest.entries().items():
        for file, described in entry.files.items():
            _check_size(folder / name / f"{file}.npy", described)
    return Shards(folder, manifest)


def take(shards: Sequence[Shard], which: Rows, rows: Rows) -> tuple[Any, Array]:
    """Features and labels of some examples, copied out of several shards: the k-th is row rows[k] of shard which[k].
    Sparse features stay sparse."""
    if len(shards) == 1:
        return shards[0].features[rows], shards[0].labels[rows]
    places = [np.flatnonzero(which == number) for number in range(len(shards))]
    back = np.argsort(np.concatenate(places))
    features, labels = [], []
    for shard, here in zip(shards, places, strict=True):
        features.append(shard.features[rows[here]])
        labels.append(shard.labels[rows[here]])
    return stacked(features)[back], np.concatenate(labels)[back]


def stacked(parts: list[Any]) -> Any:
    """Rows of several shards, one after the other, dense or sparse as they are."""
    if not is_sparse(parts[0]):
        return np.concatenate(parts)
    from scipy.sparse import vstack

    return vstack(parts, format="csr")


def check_file(path: Path, entry: FileEntry) -> None:
    """DataError where the file's checksum is not the manifest's; reads all of it."""
    try:
        with path.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"Can't read {path}: {error.strerror}. {FIX}") from error
    if digest != entry.sha256:
        raise DataError(f"{path} is damaged: its checksum is {digest[:12]}, expected {entry.sha256[:12]}. {FIX}")


def map_file(path: Path, entry: FileEntry) -> Array:
    """The array in a file, mapped read-only; DataError where it is not the one that the manifest describes."""
    _check_size(path, entry)
    try:
        with path.open("rb") as stream:
            check_npy(stream)
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # numpy's header parser lets many kinds through
        raise DataError(f"{path} is damaged: {error}. {FIX}") from error
    if not isinstance(array, np.ndarray) or (array.dtype.str, array.shape) != (entry.dtype, entry.shape):
        raise DataError(f"{path} is damaged: it is not an array of {entry.dtype} with shape {entry.shape}. {FIX}")
    return array


def _csr(files: dict[FileName, Array], entry: ShardEntry, folder: Path) -> Any:
    """The sparse rows; DataError where the files don't fit one another."""
    from scipy.sparse import csr_array

    try:
        return csr_array((files["values"], files["indices"], files["indptr"]), (entry.examples, entry.columns))
    except (ValueError, OverflowError) as error:
        raise DataError(f"{folder} is damaged: {error}. {FIX}") from error


def _check_size(path: Path, entry: FileEntry) -> None:
    try:
        size = path.stat().st_size
    except OSError as error:
        raise DataError(f"{path} is missing or can't be read: {error.strerror}. {FIX}") from error
    if size != entry.bytes:
        raise DataError(f"{path} is damaged: it has {size:,} bytes, expected {entry.bytes:,}. {FIX}")
