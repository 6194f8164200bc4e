"""What a worker owes its servers, in files that outlive it: memory that is mapped, so it costs no writing, and a worker that
is killed leaves it as it was. A machine that fails does not, so nothing is taken up after its next start."""

import fcntl
import json
import mmap
import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from paceline.base.private import make_private
from paceline.core.codecs.error_feedback import Owed

_FORMAT = 1
"""Of the file. A file of any other one is emptied, as one of another run is, and that is said: it never outlives its machine's
next start anyway."""
_HEAD = 4096
"""The stamps, then what the file belongs to, as JSON (bytes)."""
_FACTS = 64
"""Where that begins (bytes)."""


def open_owed(
    folder: Path | None, name: str, facts: Mapping[str, str], length: int, momentum: float
) -> tuple[Owed, str]:
    """What is owed to one slice of `length` elements, kept in this file of the folder, and why an earlier process's can't be
    there ('': it may). `facts`: what the file belongs to; one of anything else is emptied. Where there is no folder, or no
    file can be had there, it is kept in this process's memory."""
    shape = (2, 2 if momentum else 1, length)
    belongs = json.dumps({**facts, "boot": _boot(), "format": _FORMAT}, sort_keys=True).encode()
    memory, why = _mapped(folder, name, belongs, _HEAD + 4 * int(np.prod(shape)))
    if memory is None:
        return Owed(np.zeros(shape, np.float32), np.zeros((2, 2), np.int64), momentum), why
    states = np.ndarray(shape, np.float32, memory, _HEAD)
    return Owed(states, np.ndarray((2, 2), np.int64, memory), momentum), why


def _mapped(folder: Path | None, name: str, facts: bytes, size: int) -> tuple[mmap.mmap | None, str]:
    """The file's memory, held by this process alone, and why it is empty."""
    if folder is None:
        return None, "it was in its last process's memory; give workers --residuals FOLDER to keep it in files"
    path = folder / name
    try:
        make_private(folder)
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # for as long as it is mapped
            file.seek(0)
            head, found = file.read(_HEAD), file.seek(0, os.SEEK_END)
            why = "" if found else f"there was no file {path}"
            if found and (found != size or head[_FACTS:].rstrip(b"\0") != facts):
                why = f"{path} is of another run, plan or codec, of another release, or from before the machine's last start"
            if why:
                file.truncate(0)
                file.truncate(size)
                _reserve(file.fileno(), size)
            memory = mmap.mmap(file.fileno(), size)
    except OSError as error:
        return None, f"it can't be kept in {path}: {error.strerror}"
    memory[_FACTS : _FACTS + len(facts)] = facts
    return memory, why


def _reserve(file: int, size: int) -> None:
    """A full disk shows now, as an OSError, and not as a signal in the midst of a push."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, 0, size)


def _boot() -> str:
    """Names the time since the machine was started; '' where it does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
