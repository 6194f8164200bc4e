"""Disks that fail: full or broken ones, and one that loses its power and with it all that was not synced."""

import os
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from paceline.server.disk import Disk

CALLS = ("create", "append", "sync", "rename", "unlink", "sync_folder")


class FailingDisk(Disk):
    """Raises `error` (an errno) at each of the calls that `fails` names, which may change."""

    def __init__(self, error: int, fails: Collection[str] = (*CALLS, "stamp")) -> None:
        self.error = error
        self.fails = fails
        self.synced: list[int] = []
        """Inodes of the files whose fsync was asked for."""

    def _try(self, name: str) -> None:
        if name in self.fails:
            raise OSError(self.error, os.strerror(self.error))

    def create(self, path: Path) -> int:
        self._try("create")
        return super().create(path)

    def append(self, file: int, data: bytes | memoryview) -> None:
        if "append" in self.fails:
            super().append(file, memoryview(data)[: len(data) // 2])
        self._try("append")
        super().append(file, data)

    def sync(self, file: int) -> None:
        self.synced.append(os.fstat(file).st_ino)
        self._try("sync")
        super().sync(file)

    def rename(self, before: Path, after: Path) -> None:
        self._try("rename")
        super().rename(before, after)

    def unlink(self, path: Path) -> None:
        self._try("unlink")
        super().unlink(path)

    def stamp(self, path: Path, seconds: int) -> None:
        self._try("stamp")
        super().stamp(path, seconds)

    def sync_folder(self, folder: Path) -> None:
        self._try("sync_folder")
        super().sync_folder(folder)


class PowerCut(BaseException):
    """The machine is off: nothing that would tidy up runs."""


@dataclass(eq=False)
class Content:
    now: bytes = b""
    synced: bytes = b""


@dataclass
class PoweredDisk(Disk):
    """Cuts the power before or after its `cut_at`-th call (a failpoint). What a file holds is lost unless it was synced, and
    what happened to names unless the folder was."""

    cut_at: int | None = None
    after: bool = False
    calls: int = 0
    _open: dict[int, Content] = field(default_factory=dict)
    _names: dict[Path, Content] = field(default_factory=dict)
    _kept_names: dict[Path, Content] = field(default_factory=dict)
    _changes: list[Callable[[dict[Path, Content]], object]] = field(default_factory=list)
    """What has happened to names since the folder was synced."""

    def _call(self, action: Callable[[], object]) -> None:
        self.calls += 1
        is_last = self.calls == self.cut_at
        if is_last and not self.after:
            raise PowerCut
        action()
        if is_last:
            raise PowerCut

    def _change(self, change: Callable[[dict[Path, Content]], object]) -> None:
        change(self._names)
        self._changes.append(change)

    def create(self, path: Path) -> int:
        content, files = Content(), list[int]()

        def action() -> None:
            files.append(super(PoweredDisk, self).create(path))
            self._open[files[0]] = content
            self._change(lambda names: names.update({path: content}))

        try:
            self._call(action)
        except PowerCut:
            for file in files:
                os.close(file)
            raise
        return files[0]

    def append(self, file: int, data: bytes | memoryview) -> None:
        def action() -> None:
            super(PoweredDisk, self).append(file, data)
            self._open[file].now += bytes(data)

        self._call(action)

    def sync(self, file: int) -> None:
        def action() -> None:
            self._open[file].synced = self._open[file].now

        self._call(action)

    def rename(self, before: Path, after: Path) -> None:
        def action() -> None:
            super(PoweredDisk, self).rename(before, after)
            content = self._names[before]

            def renamed(names: dict[Path, Content]) -> None:
                names.pop(before, None)
                names[after] = content

            self._change(renamed)

        self._call(action)

    def unlink(self, path: Path) -> None:
        def action() -> None:
            super(PoweredDisk, self).unlink(path)
            self._change(lambda names: names.pop(path, None))

        self._call(action)

    def sync_folder(self, folder: Path) -> None:
        def action() -> None:
            self._kept_names = dict(self._names)
            self._changes = []

        self._call(action)

    def lose_power(self, folder: Path, survives: Callable[[], bool]) -> None:
        """Makes the folder what it is when the power comes back; `survives`: asked for each unsynced change of a name."""
        names = dict(self._kept_names)
        for change in self._changes:
            if survives():
                change(names)
        for path in folder.iterdir():
            path.unlink()
        for path, content in names.items():
            path.write_bytes(content.synced)


def survivals(seed: int) -> list[Callable[[], bool]]:
    """No unsynced change of a name survives, all do, or some by chance."""
    rng = random.Random(seed)
    return [lambda: False, lambda: True, lambda: rng.random() < 0.5]
