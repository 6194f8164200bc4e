"""Reads the few wanted files of a published data set from its tar.gz, or from the folder that it unpacks to."""

import gzip
import io
import tarfile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from paceline.core.errors import DataError
from paceline.data.files import reading

MAX_BYTES = 1 << 30
"""Most that is read from an archive or folder (bytes), five times the official CIFAR: no bomb fills the memory."""
MAX_MEMBERS = 100


class Source(NamedTuple):
    """A published data set."""

    name: str
    files: tuple[str, ...]
    """Names of the wanted files."""
    folder: str
    """Folder that the archive unpacks to."""
    where: str
    """A sentence for people: where to get it."""
    optional: tuple[str, ...] = ()
    """Names of files that are wanted but may be missing."""

    @property
    def wanted(self) -> tuple[str, ...]:
        """Names of all files that are read."""
        return (*self.files, *self.optional)


def read_files(path: Path, source: Source) -> dict[str, bytes]:
    """The wanted files by name. DataError where there is nothing at the path, where one that must be there is missing, or
    where the archive is damaged, too big or not the data set."""
    with reading(f"{source.name} from {path}", f"The file may be damaged. {source.where}"):
        is_folder = path.is_dir()
        if not is_folder and not path.exists():
            raise DataError(f"There is no {source.name} at {path}. {source.where}")
        files = _from_folder(path, source) if is_folder else _from_archive(path, source)
    missing = [name for name in source.files if name not in files]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}. {source.where}")
    return files


def _from_folder(path: Path, source: Source) -> dict[str, bytes]:
    """The wanted files by name, from the folder itself or from the one that the archive makes in it."""
    inner = path / source.folder
    folder = inner if inner.is_dir() else path
    files = [folder / name for name in source.wanted if (folder / name).is_file()]
    total = sum(file.stat().st_size for file in files)
    if total > MAX_BYTES:
        raise DataError(f"The files in {path} have {total:,} bytes; the limit is {MAX_BYTES:,}. {source.where}")
    return {file.name: file.read_bytes() for file in files}


def _from_archive(path: Path, source: Source) -> dict[str, bytes]:
    """The wanted files by name; nothing goes to disk, and the archive is read to its end, where its checksum is."""
    files: dict[str, bytes] = {}
    with path.open("rb") as packed, gzip.open(packed) as unzipped, _Capped(unzipped, path, source) as capped:
        with tarfile.open(fileobj=capped, mode="r|") as archive:
            for number, member in enumerate(archive):
                if number >= MAX_MEMBERS:
                    raise DataError(
                        f"{path} holds more than {MAX_MEMBERS} members, so it is not {source.name}. {source.where}"
                    )
                name = _checked_name(member, path, source)
                if name not in source.wanted:
                    continue
                if name in files:
                    raise DataError(f"{path} holds {name} twice, so it is not {source.name}. {source.where}")
                content = archive.extractfile(member)
                files[name] = content.read() if content else b""
        while capped.read(1 << 20):
            pass
    return files


def _checked_name(member: tarfile.TarInfo, path: Path, source: Source) -> str:
    """The member's file name; DataError where it isn't a plain file or folder inside the archive, or absurdly big."""
    place = PurePosixPath(member.name)
    if place.is_absolute() or ".." in place.parts or not (member.isreg() or member.isdir()):
        raise DataError(
            f"{path} has a member {member.name!r} that is a link or points outside the archive; don't use this "
            f"file. {source.where}"
        )
    if member.size > MAX_BYTES:
        raise DataError(
            f"{member.name!r} in {path} claims {member.size:,} bytes; the limit is {MAX_BYTES:,}. {source.where}"
        )
    return place.name if member.isreg() else ""


class _Capped(io.RawIOBase):
    """An unzipped stream that ends in a DataError after `MAX_BYTES`, whatever the archive's headers claim."""

    def __init__(self, stream: gzip.GzipFile, path: Path, source: Source) -> None:
        self._stream = stream
        self._path = path
        self._source = source
        self._left = MAX_BYTES

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        found = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(found)
        if self._left < 0:
            raise DataError(
                f"{self._path} unpacks to more than {MAX_BYTES:,} bytes, so it is not {self._source.name}. "
                f"{self._source.where}"
            )
        return found
