"""Before a run goes on with another number of servers: cuts what the servers before have kept for the new ones."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from paceline.core.settings.config import Config
from paceline.launch.folder.run_folder import RunFolder
from paceline.server.recut_folders import Uneven, recut_folders, servers_of
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
    """By worker the clock that all slices must have."""
    why: str

    def __str__(self) -> str:
        """In a sentence."""
        return f"The snapshots of the {self.servers} servers are of several moments, as after a crash: {self.why}."

    def is_over(self, status: StatusReply) -> bool:
        """Whether all workers that train are beyond these clocks."""
        members = [each for each in status.workers if each.member]
        return bool(members) and all(each.clock > self.clocks.get(each.worker, 0) for each in members)


def recut_run(folder: RunFolder, config: Config, say: Callable[[str], None]) -> Behind | None:
    """Gives the run's folder the servers that `config` names; changes nothing where it has them, or no snapshot, and where
    their slices are of several moments, which it returns. The caller holds the folder's lock, and no server runs. What
    an interrupted call left is finished, or begun from scratch. Raises what reading and writing the snapshots raises."""
    staging = folder.path / "recut"
    if (staging / _WHOLE).exists():
        _replace(folder, staging)
    shutil.rmtree(staging, ignore_errors=True)
    before, now = servers_of(folder.server(0)), config.servers
    if before in (0, now) or not now:
        return None

    new = [staging / folder.server(index).name for index in range(now)]
    kept = folder.settings().model_copy(update={"run": folder.name, "servers": now})
    try:
        plans = recut_folders([folder.server(index) for index in range(before)], new, kept, _log(say))
    except Uneven as error:
        return Behind(before, error.clocks, str(error))
    recut_owed(folder.residuals, staging / folder.residuals.name, *plans)
    (staging / _WHOLE).write_text(f"{before} {now}")
    _replace(folder, staging)
    say(f"the model is cut again, for {now} server{'s' * (now != 1)} in place of {before}")
    return None


def _replace(folder: RunFolder, staging: Path) -> None:
    """Replaces all that is old with what is new. A call that was interrupted is finished by the next."""
    before, now = map(int, (staging / _WHOLE).read_text().split())
    places = [*(folder.server(index) for index in range(now)), folder.residuals]
    for place in places:
        if (made := staging / place.name).exists():
            shutil.rmtree(place, ignore_errors=True)
            made.rename(place)
    for index in range(now, before):
        shutil.rmtree(folder.server(index), ignore_errors=True)
    shutil.rmtree(staging)


def _log(say: Callable[[str], None]) -> Callable[..., None]:
    """Returns what logs an event with its facts, as people read it."""

    def log(event: str, **facts: object) -> None:
        say(f"{event} ({', '.join(f'{key} {value}' for key, value in facts.items())})")

    return log
