"""Memory without a name, which own children get with their birth and nobody else can open: neither a file of any folder nor a
socket. Written once, then read by as many as have inherited it."""

import fcntl
import mmap
import os
import stat
import tempfile
from collections.abc import Iterable, Sequence

from paceline.core.errors import ConfigError, OutOfMemory

ALIGNMENT = 64
"""Each part begins on a multiple of this (bytes)."""
_WORD = 8
_SEALS = ("F_SEAL_WRITE", "F_SEAL_GROW", "F_SEAL_SHRINK", "F_SEAL_SEAL")


def write(parts: Sequence[bytes | memoryview]) -> int:
    """The descriptor of new memory with these parts, closed by the caller. OutOfMemory: they don't fit."""
    heads = [len(parts), *(memoryview(part).nbytes for part in parts)]
    head = b"".join(number.to_bytes(_WORD, "little") for number in heads)
    descriptor = _new()
    try:
        _write_all(descriptor, [head, *parts])
    except OSError as error:
        os.close(descriptor)
        raise OutOfMemory(
            f"There is no memory for the {sum(heads[1:]) / 2**20:,.0f} MiB of objects that the run's processes "
            f"need ({error.strerror}). Free some memory, or give a data set that reads its examples from files."
        ) from error
    _seal(descriptor)
    return descriptor


def read(descriptor: int) -> list[memoryview]:
    """The parts of inherited memory; a process that changes them changes a copy. ConfigError for a descriptor that is
    anything with a name or another end: a file, a pipe, a socket."""
    found = _looked_at(descriptor)
    if found is None or not stat.S_ISREG(found.st_mode) or found.st_nlink or found.st_uid != os.geteuid():
        raise ConfigError(
            f"Descriptor {descriptor} is not memory that this process inherited. Only paceline.train(model, ...) "
            "sends objects to a run's processes, never a file or the network."
        )
    whole = memoryview(mmap.mmap(descriptor, found.st_size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE))
    count = int.from_bytes(whole[:_WORD], "little")
    sizes = [int.from_bytes(whole[_WORD * number : _WORD * (number + 1)], "little") for number in range(1, count + 1)]
    parts, place = [], _aligned(_WORD * (count + 1))
    for size in sizes:
        parts.append(whole[place : place + size])
        place = _aligned(place + size)
    return parts


def _new() -> int:
    """For this user alone; not inherited unless somebody passes it on."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("paceline-objects", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.fchmod(descriptor, 0o600)
        return descriptor
    descriptor, path = tempfile.mkstemp()
    os.unlink(path)
    return descriptor


def _write_all(descriptor: int, parts: Iterable[bytes | memoryview]) -> None:
    place = 0
    for part in parts:
        left = memoryview(part).cast("B") if memoryview(part).nbytes else memoryview(b"")
        while left.nbytes:
            written = os.pwrite(descriptor, left, place)
            left, place = left[written:], place + written
        place = _aligned(place)
    os.ftruncate(descriptor, max(place, 1))


def _seal(descriptor: int) -> None:
    """Nobody changes it any more, where the system can do that."""
    seals = [getattr(fcntl, name, 0) for name in _SEALS]
    if all(seals) and hasattr(os, "memfd_create"):
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, sum(seals))


def _looked_at(descriptor: int) -> os.stat_result | None:
    try:
        return os.fstat(descriptor)
    except OSError:
        return None


def _aligned(place: int) -> int:
    return -(-place // ALIGNMENT) * ALIGNMENT
