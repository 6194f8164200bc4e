"""Reads the few wanted files of a published data set from its tar.gz, or from the folder that it unpacks to."""

from pathlib import Path, PurePosixPath
from typing import NamedTuple

from paceline.core.errors import DataError
from paceline.data.files import reading
from paceline.data.plain_tar import plain_members

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
    """The wanted files by name; nothing goes to disk."""
    files: dict[str, bytes] = {}

    def refuse(why: str) -> DataError:
        return DataError(f"{path} {why}, so it is not {source.name}; don't use this file. {source.where}")

    with path.open("rb") as packed:
        for member, content in plain_members(packed, MAX_BYTES, MAX_MEMBERS, refuse):
            name = PurePosixPath(member.name).name
            if content is None or name not in source.wanted:
                continue
            if name in files:
                raise refuse(f"holds {name} twice")
            files[name] = content.read()
    return files
