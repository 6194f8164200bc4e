"""Makes the folders of another number of servers from those of a stopped run, whose servers' slices are cut again."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from paceline.base.private import make_private
from paceline.core.chief.run import with_servers
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config
from paceline.core.slice.plan import SlicePlan, make_plan
from paceline.core.slice.recut import recut, uneven
from paceline.core.slice.state import SliceState
from paceline.rpc.agreed_settings import agreed_defaults, agreed_settings
from paceline.server.description import described, keep
from paceline.server.disk import Disk
from paceline.server.json_files import CheckedFiles, Owner
from paceline.server.snapshot_files import SnapshotFiles
from paceline.server.state_folder import StateFolder

Say = Callable[..., None]


class Uneven(ConfigError):
    """The newest snapshots of the servers are of several moments, so nobody can cut one model from them."""

    def __init__(self, why: str, tables: Sequence[Mapping[str, Any]]) -> None:
        """`tables`: of the snapshots."""
        super().__init__(why)
        workers = {worker for table in tables for worker in table["clocks"]}
        found = {worker: [table["clocks"].get(worker, {}).get("clock", 0) for table in tables] for worker in workers}
        self.clocks = {worker: max(clocks) for worker, clocks in found.items()}
        """The highest that any of them has, by worker: once all have these they are even."""
        self.uneven = {worker for worker, clocks in found.items() if len(set(clocks)) > 1}
        """The workers of which not all have the same."""


def servers_of(folder: Path) -> int:
    """Returns for how many servers the newest snapshot in a server's folder was cut; 0: it has none that says so."""
    snapshots = SnapshotFiles(CheckedFiles(folder, Disk(), None), Disk(), 0, None, lambda event, **facts: None)
    return next(filter(None, map(snapshots.servers, sorted(snapshots.numbers(), reverse=True))), 0)


def servers_of_run(folder: Path) -> int:
    """Returns the same of a run's folder, whichever of its servers has a snapshot."""
    return max(map(servers_of, folder.glob("server-*")), default=0)


def recut_folders(old: Sequence[Path], new: Sequence[Path], config: Config, say: Say) -> tuple[SlicePlan, SlicePlan]:
    """Writes the folders `new`, one for each of `config.servers`, from those of the servers before; returns how they cut the
    model, before and after. The old ones stay as they are. Raises Uneven, ConfigError or DataError where that can't be done."""
    run = config.run or ""
    with ExitStack() as stack:
        folders = [
            stack.enter_context(closing(_opened(folder, config, say, Owner(run, index, len(old)))))
            for index, folder in enumerate(old)
        ]
        before = config.model_copy(update={"servers": len(old)})
        for folder in folders:
            folder.check_settings(agreed_settings(before), agreed_defaults(before))
        plan, states = _newest(folders)
        if make_plan(plan.shapes, len(old), config.plan).hash != plan.hash:
            raise ConfigError(
                "The run's snapshots were cut by other settings of `plan` than config.yaml has. Set these back."
            )
        after = make_plan(plan.shapes, len(new), config.plan)
        strikes = [folder.strikes() for folder in folders]
        most = {worker: max(each.get(worker, 0) for each in strikes) for each in strikes for worker in each}
        about, term = folders[0].load_run(), max(folder.term for folder in folders)
        above = max(number for folder in folders for number in folder.terms)
        if about is None:
            raise DataError(f"{folders[0].run_file} is missing, though there are snapshots. Bring it back.")

        text = described(old[0])
        for index, (path, state) in enumerate(zip(new, recut(plan, states, after), strict=True)):
            make_private(path)
            owner = Owner(run, index, len(new))
            CheckedFiles(path, Disk(), owner).write("term.json", {"term": term})
            if text is not None:
                keep(path, text)
            with closing(_opened(path, config, say, owner)) as folder:
                folder.check_settings(agreed_settings(config))
                if index == 0:
                    folder.save_run(with_servers(about, len(new)))
                folder.save_strikes(most)
                folder.save_snapshot(after, state, above)
    return plan, after


def _opened(folder: Path, config: Config, say: Say, owner: Owner) -> StateFolder:
    return StateFolder(folder, config.checkpoint.keep, say, owner, is_start=False)


def _newest(folders: Sequence[StateFolder]) -> tuple[SlicePlan, list[SliceState]]:
    """Returns the newest states of one moment: in rounds of the newest version that all servers have. Raises Uneven where there
    are none."""
    found = [folder.newest_snapshot() for folder in folders]
    if lost := [str(index) for index, each in enumerate(found) if each is None]:
        raise DataError(
            f"Server {' and '.join(lost)} has no snapshot here, while others have, so its slice of the model is missing. Bring "
            "its folder back from its machine, or start the run over with --fresh."
        )
    states = list(filter(None, found))
    tables = [state.table for _, state in states]
    if (why := uneven(tables)) and all(table.get("rounds") for table in tables):
        found.clear()  # a model in memory less
        states = _common(folders)
        why = "" if states else why
    if why:
        raise Uneven(why, tables)
    if len({plan.hash for plan, _ in states}) > 1:
        raise DataError("The servers' snapshots are cut by different plans. Start the run over with --fresh.")
    return states[0][0], [state for _, state in states]


def _common(folders: Sequence[StateFolder]) -> list[tuple[SlicePlan, SliceState]]:
    """Returns what all servers have at the newest version at which all have it intact; nothing where none is."""
    for version in sorted(set.intersection(*(folder.round_versions() for folder in folders)), reverse=True):
        found = list(filter(None, (folder.round_snapshot(version) for folder in folders)))
        if len(found) == len(folders):
            return found
    return []
