"""What an object store has of a run (`checkpoint.at`), before the run is begun."""

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.stored_folder import StoredFolder, once


def has_checkpoints(config: Config) -> bool:
    """Whether servers of a run of this name have sent anything to the store. Raises what is wrong with the URL or the
    credentials (`StoredFolder`)."""
    return config.checkpoint.at is not None and bool(_folder(config).sizes())


def refuse_others(config: Config) -> None:
    """Raises ConfigError where the store has another run of the name that was made for this one."""
    if has_checkpoints(config):
        raise ConfigError(
            f"{config.checkpoint.at} has checkpoints of a run {config.run} already. To go on from them, or to start over with "
            f"--fresh, say --run {config.run}; otherwise give another name."
        )


def remove_checkpoints(config: Config) -> None:
    """Removes what servers of a run of this name have sent, if they have."""
    if config.checkpoint.at is not None:
        folder = _folder(config)
        folder.remove(folder.sizes())


def _folder(config: Config) -> StoredFolder:
    found = StoredFolder(f"{(config.checkpoint.at or '').rstrip('/')}/{config.run}", once)
    found.what = "snapshots"
    found.look()
    return found
