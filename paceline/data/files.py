"""Data where it lies: on a mounted volume or, through fsspec, in an object store, on HDFS or in memory."""

import bz2
import gzip
import lzma
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

from paceline.core.errors import ConfigError, DataError, PacelineError

BUNDLED = "bundled"
"""`data.path` where nothing was given: a task may bring its own data."""
UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


def at(path: str | Path) -> Path:
    """What the path names, with the methods of a Path: a local one as it is, a URL like 's3://bucket/key' or
    'memory://name' through fsspec. ConfigError where no path was given or where a package for that kind of URL lacks,
    DataError where it can't be reached."""
    if str(path) == BUNDLED:
        raise ConfigError("This task needs data of yours: set data.path (--data) to its file or folder.")
    if "://" not in str(path):
        return Path(path)
    with reading(path):
        from upath import UPath

        found = UPath(path)
        found.fs.protocol  # noqa: B018 - makes the connection's object, which needs the store's own package
    return cast(Path, found)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file's bytes, unpacked where its ending says that it is packed (.gz, .bz2, .xz)."""
    unpack = UNPACK.get(path.suffix)
    with path.open("rb") as stream:
        if unpack is None:
            yield stream
        else:
            with unpack(stream) as unpacked:
                yield unpacked


def ending(path: Path) -> str:
    """What the name ends in, lower case, without that of a packed file: '.csv' of 'a.CSV.gz'."""
    name = path.stem if path.suffix in UNPACK else path.name
    return Path(name).suffix.lower()


@contextmanager
def reading(path: object, expected: str = "") -> Iterator[None]:
    """Turns whatever a library raises on a bad file into a DataError that names it; a package that lacks is a
    ConfigError. `expected`: a sentence for people, what the file should be."""
    try:
        yield
    except PacelineError:
        raise
    except ImportError as error:
        raise ConfigError(
            f"Reading {path} needs a package that is not here: {error}. The readers come with "
            "pip install 'paceline[sharder]'; an object store needs fsspec's package for it, like s3fs."
        ) from error
    except Exception as error:  # each library has its own kinds, and parsers of bad bytes raise nearly any
        raise DataError(f"Can't read {path}: {_brief(error)}. {expected}".rstrip()) from error


def _brief(error: Exception) -> str:
    """The first line of what the error says."""
    told = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return told.strip().partition("\n")[0].rstrip(".")
