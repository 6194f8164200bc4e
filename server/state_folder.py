"""A server's folder: its lock, term and snapshots, and the chief's run state."""

import errno
import fcntl
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.slice.plan import SlicePlan
from paceline.core.slice.state import SliceState
from paceline.rpc.agreed_settings import changed_settings
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles, Owner, checked_term, understood
from paceline.server.snapshot_files import SnapshotFiles

TABLES = ("term.json", "settings.json", "run.json", "strikes.json")
"""The folder's files other than snapshots."""
_HANDOVER = 3.0
"""How long the folder of a server that was killed may stay locked: the kernel ends what it writes first (seconds)."""


class StateFolder:
    """Owns the folder while the process lives. Calls may block on the disk; use from one thread at a time, except that
    `save_run` and `save_snapshot` may overlap."""

    def __init__(
        self,
        folder: Path,
        keep: int,
        say: Callable[..., None],
        owner: Owner | None = None,
        disk: Disk | None = None,
        fill: Callable[[CheckedFiles, Disk], None] = lambda files, disk: None,
        is_start: bool = True,
    ) -> None:
        """`owner`: ConfigError if the folder is another one's; None: anybody's, to look into it. `fill`: is called before the
        folder is read, and may bring files. `is_start`: a server starts, which begins a new term; otherwise the last one
        stays."""
        self._folder = folder
        self.keep = keep
        self._say = say
        self._disk = disk = disk or Disk()
        self._lock = _locked(folder)
        self._files = CheckedFiles(folder, disk, owner)
        self._snapshots = SnapshotFiles(self._files, disk, keep, owner, say)
        try:
            fill(self._files, disk)
            self.term = self._files.term = self._next_term() - (not is_start)
            if is_start:
                self._keep_term()
            self._snapshots.sweep()
        except BaseException:
            self.close()
            raise

    def save_snapshot(self, plan: SlicePlan, state: SliceState, above: int = 0) -> None:
        """Saves a state and keeps only the newest ones. A DiskError leaves the older ones unchanged. `above`: its number is
        higher than this one."""
        self._snapshots.save(plan, state, above)

    def newest_snapshot(self) -> tuple[SlicePlan, SliceState] | None:
        """The newest intact state (`SnapshotFiles.newest`)."""
        return self._snapshots.newest()

    @property
    def passed_over(self) -> int:
        """Damaged snapshots that `newest_snapshot` has passed over."""
        return self._snapshots.passed_over

    @passed_over.setter
    def passed_over(self, count: int) -> None:
        self._snapshots.passed_over = count

    @property
    def being_sent(self) -> int | None:
        """The snapshot that is not removed because of its age, since somebody reads it."""
        return self._snapshots.being_sent

    @being_sent.setter
    def being_sent(self, number: int | None) -> None:
        self._snapshots.being_sent = number

    @property
    def path(self) -> Path:
        """The folder itself."""
        return self._folder

    @property
    def current(self) -> int:
        """The number of the snapshot that was written or read last; 0: of none."""
        return self._snapshots.current

    @property
    def terms(self) -> dict[int, int]:
        """In which the snapshots were written, by number (0: it does not say)."""
        return self._snapshots.terms()

    def version_of(self, number: int) -> int:
        """The version of a snapshot. Raises DataError if it is gone."""
        if number not in self._snapshots.versions:
            raise DataError(f"Snapshot {number} in {self._folder} is gone.")
        return self._snapshots.versions[number]

    def tables(self) -> dict[str, bytes]:
        """What the other files hold, by name; without that of the term, which each start has by itself."""
        paths = (self._folder / name for name in TABLES if name != "term.json")
        return {path.name: path.read_bytes() for path in paths if path.exists()}

    def spares(self, version: int) -> bool:
        """Whether a snapshot of this version is kept, however old it is."""
        return (version > 0 and version == self._snapshots.spared) or version in self._snapshots.good

    def spare(self, version: int) -> None:
        """Keeps the snapshot of this version, written in rounds, however old it is: all servers have it."""
        self._snapshots.spared = version

    def spare_good(self, versions: Collection[int]) -> None:
        """Keeps the snapshots of these versions, too: a diverged run may go back to them."""
        self._snapshots.good = frozenset(versions)

    @property
    def spared_good(self) -> list[int]:
        """What `spare_good` was called with last, in order."""
        return sorted(self._snapshots.good)

    @property
    def versions(self) -> list[int]:
        """Of all snapshots, in order."""
        return sorted({*self._snapshots.versions.values()})

    def good_weights(self, version: int) -> SliceState | None:
        """The state that a diverged run goes back to: of this version, or of the next older intact one with finite weights."""
        return self._snapshots.good_weights(version)

    def round_versions(self, numbers: Collection[int] | None = None) -> set[int]:
        """Versions of the snapshots that were written in rounds. `numbers`: of these only."""
        return self._snapshots.rounds(numbers)

    def round_snapshot(self, version: int) -> tuple[SlicePlan, SliceState] | None:
        """The newest intact snapshot of this version, written in rounds; None if there is none."""
        found = self._snapshots.in_rounds(version)
        return None if found is None else found[1:]

    def go_back(self, version: int) -> tuple[SlicePlan, SliceState] | None:
        """The newest intact snapshot of this version, written in rounds; removes those that are newer and begins another
        term. None, and nothing is changed, if there is none."""
        found = self._snapshots.go_back(version)
        if found is not None:
            self.term = self._files.term = self._next_term()
            self._keep_term()
        return found

    def close(self) -> None:
        """Releases the folder for another process."""
        os.close(self._lock)

    def save_run(self, state: dict[str, Any]) -> None:
        """Saves the chief's run state."""
        self._files.write("run.json", state)

    @property
    def run_file(self) -> Path:
        """Where the chief's run state is kept."""
        return self._folder / "run.json"

    def load_run(self) -> dict[str, Any] | None:
        """The chief's run state; None if there is none yet."""
        state: dict[str, Any] | None = self._files.read("run.json", None)
        return state

    def save_strikes(self, strikes: Mapping[str, int]) -> None:
        """Saves how many invalid pushes each worker has sent. A full disk keeps the older counts."""
        try:
            self._files.write("strikes.json", {"strikes": dict(strikes)})
        except DiskError as error:
            self._say("can't save the strikes of workers", why=str(error))

    def strikes(self) -> dict[str, int]:
        """What `save_strikes` has saved. DataError: it holds something else."""
        found = self._files.read("strikes.json", {"strikes": {}})
        with understood(self._folder / "strikes.json"):
            return {str(worker): int(count) for worker, count in found["strikes"].items()}

    def check_settings(self, settings: Sequence[str], defaults: Collection[str] = ()) -> None:
        """Keeps what the run's processes agree on, as 'key=value'. ConfigError where there are snapshots of other settings. A
        setting that they don't name is of a later release than theirs; where it is among the `defaults` it changes nothing."""
        found = self._files.read("settings.json", {"settings": list(settings)})
        with understood(self._folder / "settings.json"):
            differing = differing_settings(found, settings, defaults)
        if self._snapshots.numbers() and differing:
            raise other_settings(self._folder, differing)
        self._renew("settings.json", {"settings": list(settings)})

    def check_run(self, clocks: dict[str, dict[str, Any]]) -> None:
        """Before the chief goes on from a snapshot with these clocks: DataError where the run state is missing or older, since
        it would give out view numbers and incarnations that were given out before."""
        with understood(self._folder):
            issued = {worker: int(entry["incarnation"]) for worker, entry in clocks.items()}
        check_issued(self.run_file, self.load_run(), issued)

    def _next_term(self) -> int:
        """One more than any file of the folder says, so that a lost file makes no term come twice."""
        kept = self._files.read("term.json", None)
        terms = [self._files.read_with_term(name, None)[1] for name in TABLES] + [self._snapshots.highest_term()]
        highest = max(*terms, self._stamped_term())
        if kept is not None:
            with understood(self._folder / "term.json"):
                return 1 + max(checked_term(kept["term"]), highest)
        if highest:
            self._say("term.json is missing; the other files say the last term", term=highest)
        elif self._snapshots.numbers():
            raise DataError(
                f"{self._folder / 'term.json'} is missing, though there are snapshots. Bring it back, or start the run over "
                "with an empty folder."
            )
        return 1 + highest

    def _stamped_term(self) -> int:
        """The term of the last start that could not write one down; 0: each could."""
        return int(os.fstat(self._lock).st_mtime)

    def _keep_term(self) -> None:
        """Where the disk takes no new term, a run that has snapshots goes on under one that no earlier start can have had: the
        seconds since 1970. The lock's time of change keeps it, so that the next start has a higher one."""
        try:
            self._files.write("term.json", {"term": self.term})
        except DiskError as error:
            if not self._snapshots.numbers():
                raise
            self.term = self._files.term = max(self.term, int(time.time()))
            why = str(error)
            try:
                self._disk.stamp(self._folder / "lock", self.term)
            except OSError:
                why += " Not even the lock's time of change can be set: the next start may have a lower term."
            self._say("can't keep the term; it is taken from the clock", term=self.term, why=why)

    def _renew(self, name: str, value: dict[str, Any]) -> None:
        """Writes a table, or leaves it where the disk takes nothing and the run can go on with the older one."""
        try:
            self._files.write(name, value)
        except DiskError as error:
            if not self._snapshots.numbers():
                raise
            self._say("can't write a file; the older one stays", file=name, why=str(error))


def _locked(folder: Path) -> int:
    """A descriptor that keeps other servers out as long as it is open, on a disk that is only read as well."""
    path = folder / "lock"
    try:
        make_private(folder)
        try:
            is_new = not path.exists()
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            if is_new:
                os.utime(lock, (0, 0))  # no term yet (`_stamped_term`)
        except OSError as error:
            if error.errno != errno.EROFS:
                raise
            lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise DiskError(f"Can't use the folder {folder}: {error.strerror}. Give --folder a place to write.") from error
    end = time.monotonic() + _HANDOVER
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except BlockingIOError as error:
            if time.monotonic() < end:
                time.sleep(0.05)
                continue
            os.close(lock)
            raise ConfigError(f"Another server uses {folder}. Stop it, or give this one another --folder.") from error
        except OSError as error:
            os.close(lock)
            raise DiskError(
                f"{folder} can't be locked: {error.strerror}. Give --folder a place on a file system with locks, or mount this "
                "one with them (Lustre: -o flock)."
            ) from error


def differing_settings(found: Any, settings: Sequence[str], defaults: Collection[str]) -> list[str]:
    """The lines in which a read settings.json differs from `settings`; `defaults`: as for `StateFolder.check_settings`."""
    before: list[str] = found["settings"] if isinstance(found, dict) else list(settings)  # a list before format 1
    named = {line.partition("=")[0] for line in before}
    new = {line for line in defaults if line.partition("=")[0] not in named}
    return changed_settings(before, [line for line in settings if line not in new])


def other_settings(where: object, differing: Sequence[str]) -> ConfigError:
    """The error for what is kept of a run with other settings."""
    return ConfigError(
        f"{where} holds a run with other settings: {'; '.join(differing)} (before and now). Set them back, or start a new run "
        "with empty folders; paceline set changes the policy of a run."
    )


def check_issued(path: Path, run: Mapping[str, Any] | None, seen: Mapping[str, int]) -> None:
    """Raises DataError if the file has no state of the chief, or one older than a snapshot in which workers have these
    incarnations."""
    if run is None:
        raise DataError(
            f"{path} is missing, though there are snapshots. Bring it back, or start the run over with an empty folder."
        )
    with understood(path):
        issued = {worker: run["membership"]["incarnations"].get(worker, 0) for worker in seen}
        older = next((worker for worker in seen if seen[worker] > issued[worker]), None)
    if older is not None:
        raise DataError(
            f"{path} is older than the snapshots: {older} has incarnation {issued[older]} in it, "
            f"{seen[older]} there. Bring back the newer one, or start the run over with an empty folder."
        )
