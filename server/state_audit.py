"""Looks into a server's folder without changing it: which snapshots are whole, and what the next start would find."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, DataError, TooNew
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles, Owner, checked_term, understood
from paceline.server.snapshot_files import DAMAGES, SnapshotFiles
from paceline.server.state_folder import TABLES, check_issued

_FINDINGS = (*DAMAGES, ConfigError, TooNew)


@dataclass(frozen=True, slots=True)
class WholeSnapshot:
    """One whose data has the size and checksum of its manifest."""

    number: int
    version: int
    """Folds that are in its weights."""
    pushes: int
    """Pushes that the slice had counted."""
    buffered: int
    """How many of them are in the sum that folds next."""
    term: int
    """The server's start that wrote it; 0: it does not say."""
    written: float
    """When (seconds since 1970)."""
    bytes: int
    plan: str
    """Hash of the plan that it was cut by; '': it does not say."""
    clocks: dict[str, int]
    """Each worker's pushes that are in it."""
    incarnations: dict[str, int]
    """Each worker's restart number by then."""

    @property
    def is_even(self) -> bool:
        """Whether it has counted exactly the pushes that its clocks name."""
        return self.pushes == sum(self.clocks.values())


@dataclass(slots=True)
class FolderAudit:
    """What a server's folder holds."""

    folder: Path
    term: int = 0
    """The server's last start."""
    whole: list[WholeSnapshot] = field(default_factory=list)
    """The newest first; the first one is what the next start takes."""
    damaged: dict[int, str] = field(default_factory=dict)
    """Why, by the snapshot's number."""
    wrong: list[str] = field(default_factory=list)
    """All that does not fit, in sentences."""
    run: dict[str, Any] | None = None
    """The run's state, in the chief's folder."""

    @property
    def newest(self) -> WholeSnapshot | None:
        return self.whole[0] if self.whole else None


def audit_folder(folder: Path, owner: Owner | None) -> FolderAudit:
    """Reads everything once, the data of all snapshots too. `owner`: whose it should be; None: anybody's. What a server
    removes meanwhile is not missed."""
    found = FolderAudit(folder)
    files = CheckedFiles(folder, Disk(), owner)
    snapshots = SnapshotFiles(files, Disk(), 0, owner, lambda event, **facts: None)
    terms = [0]
    for name in TABLES:
        terms += _noted(found, lambda name=name: _terms_of(files, found, name), [])  # type: ignore[misc]
    for number in sorted(snapshots.numbers(), reverse=True):
        try:
            found.whole.append(_whole(snapshots, number))
        except _FINDINGS as error:
            if number in snapshots.numbers():
                found.damaged[number] = str(error)
                found.wrong.append(f"snapshot {number} is damaged: {error}.")
    found.term = max(*terms, *(each.term for each in found.whole))
    if found.damaged and not found.whole:
        found.wrong.append("None of its snapshots is intact, so the server would not start.")
    if lost := snapshots.without_manifest():
        listed = ", ".join(map(str, lost))
        found.wrong.append(f"The data of snapshot {listed} has no manifest, so that nothing can use it.")
    if found.newest is not None and not found.newest.is_even:
        lacking = sum(found.newest.clocks.values()) - found.newest.pushes
        what = f"{lacking:,} pushes are lost" if lacking > 0 else f"{-lacking:,} pushes were counted twice"
        found.wrong.append(
            f"{what}: snapshot {found.newest.number} has {found.newest.pushes:,}, its clocks name others."
        )
    return found


def _whole(snapshots: SnapshotFiles, number: int) -> WholeSnapshot:
    manifest, term = snapshots.checked(number)
    with understood(snapshots.data(number).with_suffix(".json")):
        return _described(snapshots, number, manifest, term)


def _described(snapshots: SnapshotFiles, number: int, manifest: dict[str, Any], term: int) -> WholeSnapshot:
    table = manifest["table"]
    return WholeSnapshot(
        number=number,
        version=table["version"],
        pushes=table["pushes"],
        buffered=table.get("gathered", [0])[0],
        term=term,
        written=snapshots.data(number).stat().st_mtime,
        bytes=manifest["bytes"],
        plan=manifest["plan"].get("hash", ""),
        clocks={worker: entry["clock"] for worker, entry in table["clocks"].items()},
        incarnations={worker: entry["incarnation"] for worker, entry in table["clocks"].items()},
    )


def _terms_of(files: CheckedFiles, found: FolderAudit, name: str) -> list[int]:
    """The terms that a table names."""
    value, term = files.read_with_term(name, None)
    if name == "run.json":
        found.run = value
    with understood(found.folder / name):
        return [term, checked_term(value["term"])] if name == "term.json" and value is not None else [term]


def _noted(found: FolderAudit, look: Callable[[], list[int]], otherwise: list[int]) -> list[int]:
    """What `look` gives; what is wrong with it is noted."""
    try:
        return look()
    except _FINDINGS as error:
        found.wrong.append(str(error))
        return otherwise


def check_chief(found: FolderAudit) -> None:
    """Notes where the chief would not go on from its folder."""
    if found.newest is None:
        return
    try:
        check_issued(found.folder / "run.json", found.run, found.newest.incarnations)
    except DataError as error:
        found.wrong.append(str(error))
