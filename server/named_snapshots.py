"""In lock-step: the version at which the chief wants a snapshot of each slice, and the snapshots that other servers may not
have."""

from dataclasses import dataclass
from typing import Any

from paceline.core.slice.model_slice import ModelSlice
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import Snapshot

Mark = tuple[int, int]
"""A slice's version and the pushes that it has counted."""


@dataclass(frozen=True, slots=True, eq=False)
class Taken:
    """A snapshot of one moment, still to be copied and written."""

    model_slice: ModelSlice
    plan: SlicePlan
    snapshot: Snapshot
    mark: Mark


class NamedSnapshots:
    """What the driver keeps of them. Guarded by the driver's lock."""

    def __init__(self) -> None:
        self.due = 0
        """The named version; 0: none is named."""
        self._is_ahead = False
        """It is not reached yet."""
        self.taken: Taken | None = None
        """The snapshot at that version, until it is written."""
        self._tables: dict[int, dict[str, Any]] = {}
        """The tables of snapshots on disk that other servers may not have, by version."""

    def name(self, due: int) -> None:
        """The chief names a version; repeats change nothing."""
        if due != self.due:
            self.due = due
            self._is_ahead = due > 0

    def is_reached(self, version: int) -> bool:
        """Whether the slice has just come to the named version; true once."""
        if not self._is_ahead or version < self.due:
            return False
        self._is_ahead = False
        return version == self.due

    def written(self, table: dict[str, Any]) -> None:
        """A snapshot with this table is on disk here."""
        self._tables[table["version"]] = table

    def common(self, version: int) -> dict[str, Any] | None:
        """All servers have the snapshot of this version: its table, if that is news."""
        table = self._tables.pop(version, None)
        if table is not None:
            self._tables = {of: each for of, each in self._tables.items() if of > version}
        return table

    def forget(self) -> None:
        """All slices go on from an older version, or every snapshot is common."""
        self._tables = {}
        self.taken = None

    def restart(self) -> None:
        """The slice has come back from a snapshot."""
        self.forget()
        self.due = 0
        self._is_ahead = False
