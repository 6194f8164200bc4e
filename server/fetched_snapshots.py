"""Fills the empty folder of a server from its object store, before it is opened."""

import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.core.chief.older_state import as_older
from paceline.core.errors import DataError, DiskError, Stopped, TooNew
from paceline.data.stored_folder import once
from paceline.rpc.retries import Patient
from paceline.server.disk import Disk
from paceline.server.json_files import MOST_BYTES, CheckedFiles, Owner, understood
from paceline.server.snapshot_files import digest
from paceline.server.snapshot_store import Listing, SnapshotStore, StoredSnapshot, history
from paceline.server.state_folder import TABLES, differing_settings, other_settings

_UNFINISHED = "fetching"
"""A file that is in the folder as long as it is being filled: another start goes on with that."""
_BLOCK = 8 << 20
"""Bytes that are fetched at a time."""
_PAUSE = 10.0
"""Between two words of how far it is (seconds)."""
_LOOKS = 3
"""How often the store is looked at, where somebody has removed what was found there."""
_LEFT_ALONE = "term.json"
"""The term is taken from the clock instead."""


class FetchedSnapshots:
    """Brings the snapshots and tables of a server from its store to its folder. Raises DataError if none of those that are
    there is intact, ServersGone if the store does not answer for a minute, DiskError if the folder does not take them, and
    Stopped when told to stop. Use from one thread."""

    def __init__(self, url: str, owner: Owner, say: Callable[..., None], stop: threading.Event) -> None:
        self._store = SnapshotStore(url, owner, Patient(stop, say))
        self._say = say
        self._stop = stop
        self._fetched = 0
        self._said_at = time.monotonic()
        self.damaged = 0
        """Snapshots that could not be used."""

    def fill(self, files: CheckedFiles, disk: Disk) -> None:
        """Fetches what the store has, if the folder has no snapshots, or an earlier start has not fetched all. Changes
        nothing where the store has none."""
        folder = files.folder
        unfinished = folder / _UNFINISHED
        if not unfinished.exists() and _has_snapshots(folder):
            return
        self._store.look()
        listing = self._store.listing()
        if not history(listing):
            return

        try:
            disk.write(unfinished, [b""])
            disk.sync_folder(folder)
            self._fill(files, disk, listing)
            for part in folder.glob("*.part"):
                disk.unlink(part)
            disk.unlink(unfinished)
            disk.sync_folder(folder)
        except OSError as error:
            raise DiskError(f"Can't write snapshots from {self._store.url} to {folder}: {error.strerror}.") from error

    def _fill(self, files: CheckedFiles, disk: Disk, listing: Listing) -> None:
        count = len(history(listing))
        self._say("the folder has no snapshots; fetches those of the store", url=self._store.url, snapshots=count)
        versions: list[int] = []
        for _ in range(_LOOKS):
            line = history(listing)
            versions = [each.version for each in line if self._has_fetched(each, listing[each], files, disk)]
            newest, listing = line[0], self._store.listing()
            if history(listing)[:1] in ([], [newest]):
                break  # otherwise an older start, which may still run, has removed them for a newer one
        if not versions:
            raise DataError(
                f"None of the {count} snapshots in {self._store.url} is intact. Restore one from a backup, or start the run "
                "over with another name, or --fresh."
            )
        self._fetch_tables(files, disk, listing)

        # no earlier start can have had this term, also where the last ones could not send theirs
        highest = max(each.term for each in listing)
        files.write(_LEFT_ALONE, {"term": max(highest, int(time.time()))})
        self._say("fetched snapshots from the store", versions=versions, bytes=self._fetched)

    def _has_fetched(self, stored: StoredSnapshot, sizes: Mapping[str, int], files: CheckedFiles, disk: Disk) -> bool:
        """Fetches one, and says so if it is damaged."""
        try:
            self._fetch(stored, sizes, files, disk)
        except TooNew:
            raise
        except DataError as error:
            self.damaged += 1
            self._say(
                "snapshot in the store is damaged, trying the one before",
                snapshot=f"{self._store.url}/{stored.folder}",
                why=str(error),
            )
            return False
        return True

    def _fetch(self, stored: StoredSnapshot, sizes: Mapping[str, int], files: CheckedFiles, disk: Disk) -> None:
        data, manifest = stored.files
        where = f"{stored.folder}/{manifest}"
        content = self._store.content(where, MOST_BYTES)
        facts = _parsed(self._store, files, where, content)
        with understood(f"{self._store.url}/{where}"):
            size, expected = sizes[data], facts["sha256"]
            if facts["bytes"] != size:
                raise DataError(f"{data} has {size:,} bytes, expected {facts['bytes']:,}")
        if _holds(files.folder / manifest, content):
            return  # an earlier start has fetched it

        part = files.folder / f"{stored.start}-{stored.term}-{stored.number}.part"
        self._fetch_data(f"{stored.folder}/{data}", size, part, disk)
        if digest(part) != expected:
            disk.unlink(part)
            raise DataError(f"{data} does not have the checksum of its manifest")
        waiting = files.folder / f"{manifest}.tmp"
        disk.write(waiting, [content or b""])
        disk.rename(part, files.folder / data)
        disk.rename(waiting, files.folder / manifest)
        disk.sync_folder(files.folder)

    def _fetch_data(self, name: str, size: int, part: Path, disk: Disk) -> None:
        """Goes on where an earlier start has been."""
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            start = os.fstat(file).st_size
            while start < size:
                if self._stop.is_set():
                    raise Stopped("The process got a signal to stop.")
                block = self._store.part(name, start, min(size, start + _BLOCK))
                if not block:
                    raise DataError(f"{name} is gone, or shorter than it was")
                disk.append(file, block)
                start += len(block)
                self._fetched += len(block)
                self._say_how_far(name, start, size)
            disk.sync(file)
        finally:
            disk.close(file)

    def _say_how_far(self, name: str, done: int, size: int) -> None:
        if (now := time.monotonic()) - self._said_at >= _PAUSE:
            self._said_at = now
            self._say("fetching from the store", file=name, bytes=done, of=size)

    def _fetch_tables(self, files: CheckedFiles, disk: Disk, listing: Listing) -> None:
        """The newest intact one of each name."""
        for name in TABLES:
            found = None if name == _LEFT_ALONE else newest_table(self._store, files, listing, name, self._say)
            if found is None:
                continue
            with understood(f"{self._store.url}: {name}"):
                files.write(name, as_older(found) if name == "run.json" else found)


def newest_table(
    store: SnapshotStore, files: CheckedFiles, listing: Listing, name: str, say: Callable[..., None]
) -> Any:
    """What the newest intact file of that name holds; None where there is none. Says which ones are damaged. `files`: knows
    whose they have to be. Settings are those of whole snapshots."""
    newest = history(listing) if name == "settings.json" else sorted(listing, reverse=True)
    for where in (f"{each.folder}/{name}" for each in newest if name in listing[each]):
        try:
            return _parsed(store, files, where, store.content(where, MOST_BYTES))
        except TooNew:
            raise
        except DataError as error:
            say("file in the store is damaged, trying the one before", why=str(error))
    return None


def check_stored(url: str, owner: Owner, settings: Sequence[str] | None, defaults: Collection[str]) -> bool:
    """Before a run is begun: returns whether the store has snapshots of a server, which it would go on from. ConfigError where
    they are of other `settings` (None: not known yet), or the store can't be used; other errors as a StoredFolder has them."""
    store = SnapshotStore(url, owner, once)
    store.look()
    listing = store.listing()
    if not history(listing):
        return False
    found = newest_table(store, CheckedFiles(Path(), Disk(), owner), listing, "settings.json", lambda *_, **__: None)
    if found is not None and settings is not None:
        with understood(f"{store.url}: settings.json"):
            differing = differing_settings(found, settings, defaults)
        if differing:
            raise other_settings(store.url, differing)
    return True


def _parsed(store: SnapshotStore, files: CheckedFiles, where: str, content: bytes | None) -> Any:
    if content is None:
        raise DataError(f"{store.url}/{where} is gone")
    return files.parsed(f"{store.url}/{where}", content)[0]


def _has_snapshots(folder: Path) -> bool:
    return any(folder.glob("snapshot-*.json")) or any(folder.glob("snapshot-*.safetensors"))


def _holds(path: Path, content: bytes | None) -> bool:
    return path.exists() and path.read_bytes() == content
