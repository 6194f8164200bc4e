"""Power loss for real processes: a server's disk notes next to its folder what the folder would hold without power, and a round
brings the folder to that once it has killed the server. SIGKILL alone loses nothing that was written: the kernel keeps it."""

import json
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.disks import Content, PoweredDisk

KEPT = ("lock",)
"""Files that don't go through the disk object."""


@dataclass
class NotedDisk(PoweredDisk):
    """Notes after each call what the power would leave: where no unsynced change of a name survives, and where all do. What a
    file holds is lost unless it was synced, in both."""

    note: Path = Path()
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """A server's run and its snapshots are written by two threads."""

    @classmethod
    def of(cls, folder: Path) -> "NotedDisk":
        """What the folder holds at the start counts as synced."""
        disk = cls(note=note_of(folder))
        for path in folder.iterdir() if folder.exists() else ():
            if path.name not in KEPT:
                raw = path.read_bytes()
                disk._names[path] = Content(raw, raw)
        disk._kept_names = dict(disk._names)
        return disk

    def _call(self, action: Callable[[], object]) -> None:
        with self._lock:
            super()._call(action)
            self._write_down()

    def _write_down(self) -> None:
        """The server may be killed at any moment: the note is of the call before, or of this one."""
        left = [
            {path.name: content.synced.decode("latin-1") for path, content in names.items()}
            for names in (self._kept_names, self._names)
        ]
        new = self.note.with_suffix(".power-new")
        new.write_text(json.dumps(left))
        os.replace(new, self.note)


def note_of(folder: Path) -> Path:
    """Beside the folder."""
    return folder.with_suffix(".power")


def lose_power(folder: Path, are_names_kept: bool) -> int:
    """Makes the folder of a killed server what the power leaves of it; returns how many files are not as they were.
    `are_names_kept`: whether unsynced changes of names survive."""
    if not note_of(folder).exists():
        return 0
    left = {
        name: text.encode("latin-1") for name, text in json.loads(note_of(folder).read_text())[are_names_kept].items()
    }
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in KEPT}
    for name in before:
        (folder / name).unlink()
    for name, raw in left.items():
        (folder / name).write_bytes(raw)
    return sum(before.get(name) != left.get(name) for name in {*before, *left})
