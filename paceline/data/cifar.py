"""Reads CIFAR-10 from its official binary version: records of 1 label byte and 3,072 pixel bytes (red, green, blue)."""

import gzip
import io
import tarfile
import zlib
from pathlib import Path, PurePosixPath

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Array, Dataset, Labelled

WHERE = "Get the binary version, cifar-10-binary.tar.gz, from https://www.cs.toronto.edu/~kriz/cifar.html."
TRAIN = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST = "test_batch.bin"
RECORD = 1 + 3 * 32 * 32
CLASSES = 10
MAX_BYTES = 1 << 30
"""Most that is read from an archive or folder (bytes), five times the official data: no bomb fills the memory."""
MAX_MEMBERS = 100


def read_cifar10(path: str | Path) -> Dataset:
    """Training and test images, features uint8 (N, 3, 32, 32), labels int64 (N,), from a folder or its tar.gz; any
    number of whole records in a file will do. DataError where a file is missing, truncated, too big or not CIFAR-10."""
    path = Path(path)
    if not path.exists():
        raise DataError(f"There is no CIFAR-10 at {path}. {WHERE}")
    try:
        files = _from_folder(path) if path.is_dir() else _from_archive(path)
    except (OSError, EOFError, zlib.error, tarfile.TarError) as error:
        raise DataError(f"Can't read CIFAR-10 from {path}: {error}. The file may be damaged. {WHERE}") from error
    missing = [name for name in (*TRAIN, TEST) if name not in files]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}. {WHERE}")
    batches = [_records(files[name], name, path) for name in TRAIN]
    train = Labelled(
        np.concatenate([images for images, _ in batches]), np.concatenate([labels for _, labels in batches])
    )
    return Dataset(train=train, test=Labelled(*_records(files[TEST], TEST, path)))


def _records(content: bytes, name: str, path: Path) -> tuple[Array, Array]:
    """(images, labels) of one file."""
    if not content or len(content) % RECORD:
        raise DataError(
            f"{name} in {path} has {len(content):,} bytes, which is not a whole number of records of {RECORD:,}; "
            f"it is truncated or not CIFAR-10. {WHERE}"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, RECORD)
    labels = records[:, 0].astype(np.int64)
    if labels.max() >= CLASSES:
        row = int(np.argmax(labels >= CLASSES))
        raise DataError(
            f"Record {row:,} of {name} in {path} has label {labels[row]}; expected 0 to {CLASSES - 1}. {WHERE}"
        )
    return records[:, 1:].reshape(-1, 3, 32, 32).copy(), labels


def _from_folder(path: Path) -> dict[str, bytes]:
    """The wanted files by name, from the folder itself or from the one that the archive makes in it."""
    inner = path / "cifar-10-batches-bin"
    folder = inner if inner.is_dir() else path
    files = [folder / name for name in (*TRAIN, TEST) if (folder / name).is_file()]
    total = sum(file.stat().st_size for file in files)
    if total > MAX_BYTES:
        raise DataError(f"The files in {path} have {total:,} bytes, more than the {MAX_BYTES:,} that are read. {WHERE}")
    return {file.name: file.read_bytes() for file in files}


def _from_archive(path: Path) -> dict[str, bytes]:
    """The wanted files by name; nothing goes to disk, and the archive is read to its end, where its checksum is."""
    files: dict[str, bytes] = {}
    with gzip.open(path) as unzipped, _Capped(unzipped, path) as capped:
        with tarfile.open(fileobj=capped, mode="r|") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    raise DataError(f"{path} holds more than {MAX_MEMBERS} members; this is not CIFAR-10. {WHERE}")
                name = _checked_name(member, path)
                if name not in (*TRAIN, TEST):
                    continue
                if name in files:
                    raise DataError(f"{path} holds {name} twice; this is not CIFAR-10. {WHERE}")
                content = archive.extractfile(member)
                files[name] = content.read() if content else b""
        while capped.read(1 << 20):
            pass
    return files


def _checked_name(member: tarfile.TarInfo, path: Path) -> str:
    """The member's file name; DataError where it isn't a plain file or folder inside the archive, or absurdly big."""
    place = PurePosixPath(member.name)
    if place.is_absolute() or ".." in place.parts or not (member.isreg() or member.isdir()):
        raise DataError(
            f"{path} has a member {member.name!r} that is a link or lies outside of it; don't use it. {WHERE}"
        )
    if member.size > MAX_BYTES:
        raise DataError(f"{member.name!r} in {path} claims {member.size:,} bytes; the limit is {MAX_BYTES:,}. {WHERE}")
    return place.name if member.isreg() else ""


class _Capped(io.RawIOBase):
    """An unzipped stream that ends in a DataError after `MAX_BYTES`, whatever the archive's headers claim."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path, self._left = stream, path, MAX_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        found = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(found)
        if self._left < 0:
            raise DataError(f"{self._path} unpacks to more than {MAX_BYTES:,} bytes; this is not CIFAR-10. {WHERE}")
        return found
