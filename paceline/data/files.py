"""Data where it lies: on a mounted volume or, through fsspec, in an object store, on HDFS or in memory."""

import bz2
import gzip
import lzma
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeVar, cast

from paceline.base.extras import lacking
from paceline.core.errors import ConfigError, DataError, NoData, PacelineError
from paceline.data import object_stores
from paceline.data.out_of_core import PIECE_BYTES

Parsed = TypeVar("Parsed")

BUNDLED = "bundled"
"""`data.path` where nothing was given: a task may bring its own data."""
UNPACK: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
MOST_UNPACKED = 1100
"""Times that a file may be larger than it is packed: the method of gzip and zip reaches 1,032, those of bz2 and xz more."""
_LITTLE = 1 << 20
"""Any packed file may hold as much (bytes)."""
MAX_LINE = 256 << 20
"""Longest line that is read (bytes): a packed file without line ends would fill any memory."""


def at(path: str | Path) -> Path:
    """What the path names, with the methods of a Path: a local one as it is, a URL like 's3://bucket/key' or
    'memory://name' through fsspec. ConfigError where no path was given, where the package for that kind of URL is not
    installed or where an object store refuses its credentials, DataError where it has no such bucket, StoreGone where
    it does not answer. That nothing has this name is no error."""
    if str(path) == BUNDLED:
        raise NoData("This task needs your own data: set data.path (--data) to its file or folder.")
    if "://" not in str(path):
        return Path(path)
    with reading(path):
        from upath import UPath

        found = UPath(path)
        found.fs.protocol  # noqa: B018 - makes the connection's object, which needs the store's own package
        object_stores.look(found, found.fs, found.path)
    return cast(Path, found)


def folder_at(path: str | Path, expected: str) -> Path:
    """As `at`; DataError where it is no folder. `expected`: a sentence for people, what should be in it."""
    folder = at(path)
    with reading(folder, expected):
        if not folder.is_dir():
            seen = "is a file, not a folder" if folder.exists() else "does not exist"
            raise DataError(f"{folder} {seen}. {expected}")
    return folder


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


def parsed(
    path: Path,
    parse: Callable[[bytes], Parsed],
    expected: str,
    open_: Callable[[Path], AbstractContextManager[BinaryIO]] = opened,
) -> Iterator[Parsed]:
    """What `parse` makes of each block of whole lines (about 16 MiB) of the unpacked file, in turn. `parse` changes nothing
    and raises an Exception where a block is bad; the DataError then names the first bad line. `expected`: as for
    `reading`; `open_`: gives the file's bytes."""
    before = 0
    with reading(path, expected):
        for block in _blocks(path, open_):
            try:
                found = parse(block)
            except ImportError:
                raise
            except Exception as error:
                line, text, reason = _first_fault(block, parse, error)
                shown = repr(text.decode(errors="replace"))
                raise ValueError(f"line {before + line:,} ({shown:.80}): {_brief(reason)}") from error
            yield found
            before += block.count(b"\n")


def _blocks(path: Path, open_: Callable[[Path], AbstractContextManager[BinaryIO]]) -> Iterator[bytes]:
    rest, total = b"", 0
    is_packed = path.suffix in UNPACK
    most = max(_LITTLE, MOST_UNPACKED * path.stat().st_size)
    longest = min(MAX_LINE, max(_LITTLE, most // 10)) if is_packed else MAX_LINE
    size = min(PIECE_BYTES, most + 1) if is_packed else PIECE_BYTES
    with open_(path) as stream:
        while piece := stream.read(size):
            total += len(piece)
            if is_packed and total > most:
                raise ValueError(
                    f"it unpacks to more than {MOST_UNPACKED:,} times its size; unpack it to read it nevertheless"
                )
            block = rest + piece
            end = block.rfind(b"\n") + 1
            if len(block) - end > longest:
                raise ValueError(f"a line has more than {longest:,} bytes")
            if end:
                yield block[:end]
            rest = block[end:]
    if rest:
        yield rest


def _first_fault(block: bytes, parse: Callable[[bytes], object], error: Exception) -> tuple[int, bytes, Exception]:
    """The line, counted from 1, with which the block becomes bad, its text, and what is wrong. `error`: what the whole
    block raises."""
    lines = block.rstrip(b"\n").split(b"\n")

    def fault(count: int) -> Exception | None:
        try:
            parse(b"\n".join(lines[:count]))
        except Exception as found:
            return found
        return None

    count = 1 + bisect_left(range(1, len(lines)), True, key=lambda count: fault(count) is not None)
    return count, lines[count - 1], fault(count) or error


def plain_or_packed(folder: Path, name: str) -> Path | None:
    """The file of this name in the folder, or the gzipped one; None where there is neither."""
    files = (folder / name, folder / f"{name}.gz")
    return next((file for file in files if file.is_file()), None)


def ending(path: Path) -> str:
    """What the name ends in, lower case, without that of a packed file: '.csv' of 'a.CSV.gz'."""
    name = path.stem if path.suffix in UNPACK else path.name
    return Path(name).suffix.lower()


@contextmanager
def reading(path: object, expected: str = "") -> Iterator[None]:
    """Turns any error that a library raises on a bad file into a DataError that names it; a missing package is
    a ConfigError, and an object store that can't be used has its own errors (`object_stores.told`). `expected`: a
    sentence for people, what the file should be."""
    try:
        yield
    except PacelineError:
        raise
    except ImportError as error:
        if told := lacking(error, f"Reading {path}"):
            raise ConfigError(told) from error
        raise ConfigError(
            f"Reading {path} needs a package that is not installed here: {error}. Get it by pip install."
        ) from error
    except Exception as error:  # each library has its own kinds, and parsers of bad bytes raise nearly any
        if refusal := object_stores.store_error(path, error):
            raise refusal from error
        raise DataError(f"Can't read {path}: {_brief(error)}. {expected}".rstrip()) from error


def _brief(error: Exception) -> str:
    """The first line of what the error says."""
    told = (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__
    return told.strip().partition("\n")[0].rstrip(".")
