"""A launch of a run that was stopped and has another number of servers now: its model is cut for them before it goes on."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

from paceline.core.errors import ConfigError, DiskError
from paceline.core.settings.config import Config
from paceline.launch.folder.recut_run import Behind, recut_run
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.supervise.others import Others
from paceline.launch.supervise.outcome import Outcome
from paceline.v1.run_service_pb2 import StatusReply

Until = Callable[[StatusReply], bool]


class Launch(Protocol):
    """Trains with these settings, to the end; with `until`, no longer than until that is so, and returns None then."""

    def __call__(self, config: Config, until: Until | None = None, /) -> Outcome | None: ...


def with_its_servers(
    place: RunFolder, config: Config, others: Others | None, say: Callable[[str], None], launch: Launch
) -> Outcome:
    """Returns what came of the launch. ConfigError if the model can't be cut, DiskError if the folder can't be changed."""
    if (behind := _recut(place, config, others, say)) is not None:
        outcome = _catch_up(place, config, behind, say, launch)
        if outcome is not None:
            return outcome
        if (still := _recut(place, config, others, say)) is not None:
            raise ConfigError(
                f"{still} They could not be made even, since a worker has not come back for it. Go on with {still.servers} "
                f"servers and all workers, and change the number of servers once all of them train: {place.again} -s "
                f"{still.servers}"
            )
    outcome = launch(config)
    assert outcome is not None
    return outcome


def _recut(place: RunFolder, config: Config, others: Others | None, say: Callable[[str], None]) -> Behind | None:
    here = config.servers if others is None else others.servers_here(config)
    with _held(place):
        return recut_run(place, config, say, all_here=here >= config.servers)


def _catch_up(
    place: RunFolder, config: Config, behind: Behind, say: Callable[[str], None], launch: Launch
) -> Outcome | None:
    """Trains with the servers before until their slices are of one moment, as a crash has not left them. Returns None once they
    are, and the run's end where it comes first."""
    say(f"{behind} So they go on first, until the workers have made up for it.")
    with _held(place):
        place.set_servers(behind.servers)
    outcome = launch(config.model_copy(update={"servers": behind.servers}), behind.until(config.start_timeout))
    if outcome is not None and outcome.is_finished:
        say(f"The run has finished with its {behind.servers} servers, before there was a use for {config.servers}.")
        return outcome
    with _held(place):
        place.set_servers(config.servers)
    return outcome


@contextmanager
def _held(place: RunFolder) -> Iterator[None]:
    """The run's folder is this process's own until the block ends. DiskError where the block can't use it."""
    try:
        with place.locked():
            yield
    except OSError as error:
        raise DiskError(
            f"Can't change the servers in {place.path}: {error.strerror or error}. What the run has kept is still there; make "
            "room, or let this user write there, and give the command again."
        ) from error
