"""Where `checkpoint.at` says: one server's snapshots in an object store, how they are named there, and which of them are one
history."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from paceline.data.stored_folder import Again, StoredFolder
from paceline.server.json_files import Owner
from paceline.server.snapshot_files import names_of

_FOLDER = re.compile(r"(\d{19})-([0-9a-f]{8})/(\d{12})-(\d{1,19})")


@dataclass(frozen=True, slots=True, order=True)
class StoredSnapshot:
    """A snapshot, and the other files of the server's folder as they were then; newer ones are greater. Only the start that has
    sent it writes to its folder, so a late process overwrites nothing of another one's."""

    term: int
    number: int
    """As in the server's folder; 0: there was no snapshot yet, and it is the other files alone."""
    start: str
    """Eight hexadecimal digits that each start draws."""
    version: int

    @property
    def folder(self) -> str:
        """Below that of the server."""
        return f"{self.term:019d}-{self.start}/{self.number:012d}-{self.version}"

    @property
    def files(self) -> tuple[str, str]:
        """Its data and its manifest, which is sent last."""
        return names_of(self.number)


Listing = Mapping[StoredSnapshot, Mapping[str, int]]
"""What the store has: the bytes of each file, by snapshot and name."""


class SnapshotStore(StoredFolder):
    """The folder of one server. Errors as there."""

    what = "snapshots"

    def __init__(self, url: str, owner: Owner, again: Again) -> None:
        """`url`: what the setting says."""
        self.run_url = run_url(url, owner.run)
        super().__init__(f"{self.run_url}/server-{owner.server}", again)

    def listing(self) -> Listing:
        """Returns what it has. Other things that lie there are left alone."""
        found: dict[StoredSnapshot, dict[str, int]] = {}
        for path, size in self.sizes().items():
            folder, _, name = path.rpartition("/")
            if match := _FOLDER.fullmatch(folder):
                term, start, number, version = match.groups()
                found.setdefault(StoredSnapshot(int(term), int(number), start, int(version)), {})[name] = size
        return found


def is_of_a_server(path: str) -> bool:
    """Whether servers have sent the file of this path below that of their run."""
    server, _, name = path.partition("/")
    return re.fullmatch(r"server-\d+", server) is not None and _FOLDER.fullmatch(name.rpartition("/")[0]) is not None


def run_url(url: str, run: str) -> str:
    """Where all servers of a run have their folders."""
    return f"{url.rstrip('/')}/{run}" if run else url.rstrip("/")


def history(listing: Listing) -> list[StoredSnapshot]:
    """The whole snapshots of one history, the newest first: what an older start has sent since a newer one went on from an
    earlier snapshot is no part of it."""
    line: list[StoredSnapshot] = []
    for snapshot in sorted((each for each in listing if _is_whole(each, listing[each])), reverse=True):
        if not line or _is_before(snapshot, line[-1]):
            line.append(snapshot)
    return line


def _is_before(older: StoredSnapshot, newer: StoredSnapshot) -> bool:
    """Whether the newer one may have gone on from the older one: two starts of one term know nothing of each other."""
    return older.number < newer.number and (older.term < newer.term or older.start == newer.start)


def _is_whole(snapshot: StoredSnapshot, names: Collection[str]) -> bool:
    return snapshot.number > 0 and all(name in names for name in snapshot.files)
