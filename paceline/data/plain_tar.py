"""Reads a tar.gz that somebody else made: plain files and folders inside of it, and no more bytes than were agreed on."""

import gzip
import io
import tarfile
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath
from typing import IO, BinaryIO

MOST_NAME = 8 << 10
"""Longest header with a member's name and attributes (bytes); tarfile reads it whole."""
_NAMES = (tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK)
Refuse = Callable[[str], Exception]
"""Makes the error of a clause like 'holds more than 3 members'."""


def plain_members(
    packed: BinaryIO, most: int, most_members: int, refuse: Refuse
) -> Iterator[tuple[tarfile.TarInfo, IO[bytes] | None]]:
    """Each member with its content, which must be read before the next one; None: a folder. Nothing goes to disk, and the
    archive is read to its end, where its checksum is. Raises what `refuse` makes of more than `most` unpacked bytes or
    `most_members`, of links and other special files, and of places outside; what tarfile and gzip raise of damage."""
    with gzip.open(packed) as unzipped, _Capped(unzipped, most, refuse) as capped:
        with tarfile.open(fileobj=capped, mode="r|", tarinfo=_Member) as archive:
            for number, member in enumerate(archive):
                if number >= most_members:
                    raise refuse(f"holds more than {most_members:,} members")
                place = PurePosixPath(member.name)
                is_plain = (member.isreg() and not member.issparse()) or member.isdir()
                if place.is_absolute() or ".." in place.parts or "\0" in member.name or not is_plain:
                    raise refuse(
                        f"has a member {member.name!r:.300} that is a link or a sparse file, or points outside the archive"
                    )
                if not 0 <= member.size <= most:
                    raise refuse(
                        f"has a member {member.name!r:.300} that claims {member.size:,} bytes; the limit is {most:,}"
                    )
                yield member, archive.extractfile(member) if member.isreg() else None
        while capped.read(1 << 20):
            pass


class _Member(tarfile.TarInfo):
    """One whose name does not fill the memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Member":
        found = super().frombuf(buf, encoding, errors)
        if found.type in _NAMES and not 0 <= found.size <= MOST_NAME:
            raise tarfile.ReadError(f"a name takes {found.size:,} bytes; the limit is {MOST_NAME:,}")
        return found


class _Capped(io.RawIOBase):
    """A stream that ends in an error after `most` bytes, whatever the headers in it claim."""

    def __init__(self, stream: gzip.GzipFile, most: int, refuse: Refuse) -> None:
        self._stream = stream
        self._most = self._left = most
        self._refuse = refuse

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        found = self._stream.read(min(size, self._left + 1) if size >= 0 else self._left + 1)
        self._left -= len(found)
        if self._left < 0:
            raise self._refuse(f"unpacks to more than {self._most:,} bytes")
        return found
