"""What a worker owes its servers, in files that outlive it: memory that is mapped, so it costs no writing, and a worker that
is killed leaves it as it was. A machine that fails does not, so nothing is taken up after its next start."""

import fcntl
import itertools
import json
import mmap
import os
import shutil
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.base.private import make_private
from paceline.core.codecs.error_feedback import Owed
from paceline.core.slice.plan import SlicePlan
from paceline.core.values import Vector

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


def recut_owed(folder: Path, into: Path, before: SlicePlan, after: SlicePlan) -> None:
    """Writes to the folder `into` what `folder` holds of the workers of a stopped run, with what each owes cut for the servers
    of the plan `after`. A worker owes nothing whose files are of several clocks. Raises OSError."""
    if not folder.is_dir():
        return
    make_private(into)
    workers: dict[str, dict[int, Path]] = {}
    for path in folder.iterdir():
        worker, _, number = path.name.rpartition("-server-")
        if worker and number.isdecimal():
            workers.setdefault(worker, {})[int(number)] = path
        else:
            shutil.copy2(path, into)
    for worker, files in workers.items():
        kept = [
            _states_in(files[server], before, length) if server in files else {} for server, length in _parts(before)
        ]
        newest = list(kept[-1]) if kept else []
        clocks = [clock for clock in newest if all(clock in each for each in kept)]
        for server, content in _files(before, after, clocks, kept, files).items():
            (into / f"{worker}-server-{server}").write_bytes(content)


def _parts(plan: SlicePlan) -> list[tuple[int, int]]:
    """Returns the servers that anything can be owed to, and the elements of their slices."""
    return [(server, length) for server, length in enumerate(plan.lengths) if length]


def _states_in(path: Path, plan: SlicePlan, length: int) -> dict[int, npt.NDArray[np.float32]]:
    """Returns the states of a file, each (1 or 2 x length), by the clock after which it holds, the newest last; none of another
    plan's file."""
    content = path.read_bytes()
    facts = _facts_in(content)
    if facts.get("plan") != plan.hash or facts.get("boot") != _boot() or (len(content) - _HEAD) % (8 * length):
        return {}
    stamps = np.frombuffer(content, np.int64, 4).reshape(2, 2)
    states = np.frombuffer(content, np.float32, offset=_HEAD).reshape(2, -1, length)
    whole = [
        (number, clock, state) for (clock, number), state in zip(stamps.tolist(), states, strict=True) if number > 0
    ]
    return {clock: state for _, clock, state in sorted(whole, key=itemgetter(0))}


def _files(
    before: SlicePlan,
    after: SlicePlan,
    clocks: Sequence[int],
    kept: Sequence[Mapping[int, npt.NDArray[np.float32]]],
    files: Mapping[int, Path],
) -> dict[int, bytes]:
    """Returns the files of what a worker owes each server of the plan `after`: the states of `clocks`, of which `kept` has
    those for the servers of `before`."""
    if not clocks:
        return {}
    facts = _facts_in(next(iter(files.values())).read_bytes()) | {"plan": after.hash}
    text = json.dumps(facts, sort_keys=True).encode()
    cut = [[after.parts(row) for row in _whole(before, [each[clock] for each in kept])] for clock in clocks]
    stamps = np.zeros((2, 2), np.int64)
    stamps[: len(clocks)] = list(zip(clocks, itertools.count(1), strict=False))
    head = (stamps.tobytes().ljust(_FACTS, b"\0") + text).ljust(_HEAD, b"\0")

    found = {}
    for server, length in _parts(after):
        states = np.zeros((2, len(cut[0]), length), np.float32)
        for state, rows in zip(states, cut, strict=False):
            state[:] = [row[server] for row in rows]
        found[server] = head + states.tobytes()
    return found


def _whole(plan: SlicePlan, states: Sequence[npt.NDArray[np.float32]]) -> list[Vector]:
    """Returns the rows of a state for the whole model; `states`: those for the servers that anything can be owed to."""
    own = iter(states)
    empty = np.empty((len(states[0]), 0), np.float32)
    each = [next(own) if length else empty for length in plan.lengths]
    return [plan.joined(rows) for rows in zip(*each, strict=True)]


def _facts_in(content: bytes) -> dict[str, str]:
    found: dict[str, str] = json.loads(content[_FACTS:_HEAD].rstrip(b"\0") or b"{}")
    return found


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
