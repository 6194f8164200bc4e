"""Sends a server's snapshots to an object store, and removes there what its folder would not keep either."""

import secrets

from paceline.core.errors import ConfigError
from paceline.data.stored_folder import once
from paceline.server.json_files import Owner
from paceline.server.snapshot_store import Listing, SnapshotStore, StoredSnapshot, history
from paceline.server.state_folder import StateFolder


class Superseded(ConfigError):
    """Another start of this server has sent snapshots that this one does not have."""


class SentSnapshots:
    """Copies what is in a server's folder. Each call asks the store once, and may raise what a StoredFolder raises, or OSError
    where the folder can't be read. Use from one thread at a time."""

    def __init__(self, url: str, owner: Owner, folder: StateFolder) -> None:
        self._store = SnapshotStore(url, owner, once)  # what can't be sent goes with the next one
        self._folder = folder
        self._start = secrets.token_hex(4)
        self._last = StoredSnapshot(folder.term, 0, self._start, 0)
        self._tables: dict[str, bytes] = {}
        """As they were sent last."""
        self._listing: Listing = {}
        self.numbers: frozenset[int] = frozenset()
        """The folder's snapshots that are in the store, too. Replaced, never changed: any thread may read it."""

    def look(self) -> None:
        """At the start: learns what the store has. Raises Superseded where that is newer than the folder."""
        self._store.look()
        self._list()
        terms = self._folder.terms
        newest = next(iter(history(self._listing)), self._last)
        # a folder that has gone back has a term that was not sent yet
        if newest.number > max(terms, default=0) and newest.term >= self._folder.term - 1:
            raise self._superseded(newest)
        self.numbers = frozenset(
            each.number for each in history(self._listing) if terms.get(each.number) == each.term > 0
        )

    def send(self, number: int) -> None:
        """Sends this snapshot of the folder, its manifest last. Raises Superseded where a later start has sent one."""
        snapshot = StoredSnapshot(self._folder.term, number, self._start, self._folder.version_of(number))
        data, manifest = (self._folder.path / name for name in snapshot.files)
        content = manifest.read_bytes()
        self._store.stream(data, f"{snapshot.folder}/{data.name}")
        tables = self._folder.tables()
        for name, table in tables.items():
            self._store.put_content(f"{snapshot.folder}/{name}", table)
        self._store.put_content(f"{snapshot.folder}/{manifest.name}", content)

        self._last, self._tables = snapshot, tables
        self._list()

    def has(self, number: int) -> None:
        """Notes that the store has this snapshot of the folder. Call it, as `forget`, where nobody changes the folder."""
        self.numbers |= {number}

    def send_tables(self) -> None:
        """Sends the folder's other files again, as far as they have changed."""
        tables = self._folder.tables()
        for name, table in tables.items():
            if self._tables.get(name) != table:
                self._store.put_content(f"{self._last.folder}/{name}", table)
                self._tables[name] = table

    def prune(self) -> None:
        """Removes what is older than the last one sent, and is not to be kept."""
        line = history(self._listing)
        kept = {*line[: self._folder.keep], *(each for each in line if self._folder.spares(each.version))}
        old = [each for each in self._listing if each < self._last and each not in kept]
        # the manifest first, so that what is left of an interrupted removal is not taken for whole
        for each in old:
            names = sorted(self._listing[each], key=lambda name: name != each.files[1])
            self._store.remove(f"{each.folder}/{name}" for name in names)
            self._listing = {other: files for other, files in self._listing.items() if other != each}

    def forget(self) -> None:
        """The folder has removed snapshots, and gives their numbers to others."""
        self.numbers &= self._folder.terms.keys()

    def _list(self) -> None:
        """Raises Superseded where another start has sent something since this one began: a later one, or one of another folder
        at the same time."""
        self._listing = self._store.listing()
        others = [each for each in self._listing if each.term >= self._folder.term and each.start != self._start]
        if others:
            raise self._superseded(max(others))

    def _superseded(self, other: StoredSnapshot) -> Superseded:
        return Superseded(
            f"{self._store.url} has snapshots that {self._folder.path} lacks: number {other.number} of a later start of this "
            f"server (term {other.term}; this one has term {self._folder.term}), or of another run of the name. To go on from "
            "them, start it with an empty folder; to start the run over, remove both; two runs at a time need two names."
        )
