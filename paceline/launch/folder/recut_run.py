"""Before a run goes on with another number of servers: cuts what the servers before have kept for the new ones."""

import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.whole_file import replacing
from paceline.launch.folder.run_folder import RunFolder
from paceline.server.disk import Disk
from paceline.server.recut_folders import Uneven, recut_folders, servers_of_run
from paceline.v1.run_service_pb2 import StatusReply
from paceline.worker.exchange.residuals import recut_owed

_WHOLE = "whole"
"""The file that says that all new folders are written, and for how many servers, before and now."""


@dataclass(frozen=True, slots=True)
class Behind:
    """Why a model can't be cut again yet: a crash has left its slices at several moments."""

    servers: int
    """Those that can make up for it."""
    clocks: Mapping[str, int]
    """By worker the highest that any slice has."""
    uneven: Collection[str]
    """The workers of which not all slices have the same."""
    why: str

    def __str__(self) -> str:
        """In a sentence."""
        return f"The snapshots of the {self.servers} servers are of several moments, as after a crash: {self.why}."

    def is_over(self, status: StatusReply) -> bool:
        """Whether all workers that the slices do not have alike are beyond their clocks, and all others that train."""
        seen = {each.worker: each for each in status.workers}
        awaited = {*self.uneven, *(name for name, each in seen.items() if each.member)}
        return bool(awaited) and all(name in seen and seen[name].clock > self.clocks.get(name, 0) for name in awaited)

    def until(self, patience: float) -> Callable[[StatusReply], bool]:
        """Returns what says whether it is over, or has not been for `patience` seconds of training."""
        begun: list[float] = []

        def is_over(status: StatusReply) -> bool:
            begun.append(status.seconds)
            return self.is_over(status) or status.seconds - begun[0] > patience

        return is_over


def recut_run(folder: RunFolder, config: Config, say: Callable[[str], None], all_here: bool = True) -> Behind | None:
    """Gives the run's folder the servers that `config` names; changes nothing where it has them, or no snapshot, and where
    their slices are of several moments, which it returns. The caller holds the folder's lock, and no server runs; `all_here`:
    whether all servers will run on this machine. What an interrupted call left is finished, or begun from scratch. Raises
    ConfigError where a server is to run elsewhere, OSError, and what reading and writing the snapshots raises."""
    staging = folder.path / "recut"
    if (staging / _WHOLE).exists():
        _replace(folder, staging)
    shutil.rmtree(staging, ignore_errors=True)
    before, now = servers_of_run(folder.path), config.servers
    if before in (0, now) or not now:
        return None
    if not all_here:
        raise ConfigError(
            f"Run '{folder.name}' has {before} servers, and its model can be cut for {now} only where all of them run on this "
            f"machine. Stay with {before} servers, or give this machine all of them."
        )

    new = [staging / folder.server(index).name for index in range(now)]
    kept = folder.settings().model_copy(update={"run": folder.name, "servers": now})
    try:
        plans = recut_folders([folder.server(index) for index in range(before)], new, kept, _log(say))
    except Uneven as error:
        return Behind(before, error.clocks, error.uneven, str(error))
    recut_owed(folder.residuals, staging / folder.residuals.name, *plans)
    Disk().sync_folder(staging)
    with replacing(staging / _WHOLE, "the new servers") as temporary:
        temporary.write_text(f"{before} {now}")
    _replace(folder, staging)
    say(f"the model is cut again, for {now} server{'s' * (now != 1)} in place of {before}")
    return None


def _replace(folder: RunFolder, staging: Path) -> None:
    """Replaces all that is old with what is new. A call that was interrupted is finished by the next."""
    before, now = map(int, (staging / _WHOLE).read_text().split())
    places = [*(folder.server(index) for index in range(now)), folder.residuals]
    for place in places:
        if (made := staging / place.name).exists():
            if place.exists():
                shutil.rmtree(place)
            made.rename(place)
    Disk().sync_folder(folder.path)
    for index in range(now, before):
        shutil.rmtree(folder.server(index), ignore_errors=True)
    shutil.rmtree(staging)


def _log(say: Callable[[str], None]) -> Callable[..., None]:
    """Returns what logs an event with its facts, as people read it."""

    def log(event: str, **facts: object) -> None:
        say(f"{event} ({', '.join(f'{key} {value}' for key, value in facts.items())})")

    return log
