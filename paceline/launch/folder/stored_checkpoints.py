"""What an object store has of a run (`checkpoint.at`), before the run is begun."""

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config


def has_checkpoints(config: Config) -> bool:
    """Whether the store has snapshots of a run of this name, which its servers would go on from. ConfigError where they are of
    other settings; otherwise raises what is wrong with the URL or the credentials (`StoredFolder`)."""
    url = config.checkpoint.at
    if url is None:
        return False
    from paceline.rpc.agreed_settings import agreed_defaults, agreed_settings
    from paceline.server.fetched_snapshots import check_stored
    from paceline.server.json_files import Owner

    owner = Owner(config.run or "", 0, config.servers)
    settings = None if config.is_script else agreed_settings(config)  # a script has yet to say them
    return check_stored(url, owner, settings, agreed_defaults(config))


def refuse_others(config: Config) -> None:
    """Raises ConfigError where the store has a run of the name that was made for a new one."""
    if has_checkpoints(config):
        raise ConfigError(
            f"{config.checkpoint.at} has checkpoints of a run {config.run} already. To go on from them, or to start over with "
            f"--fresh, add --run {config.run}; otherwise give another name."
        )


def remove_checkpoints(config: Config) -> None:
    """Removes what servers of a run of this name have sent, if they have."""
    url = config.checkpoint.at
    if url is not None:
        from paceline.data.stored_folder import StoredFolder, once
        from paceline.server.snapshot_store import is_of_a_server, run_url

        folder = StoredFolder(run_url(url, config.run or ""), once)
        folder.look()
        # other things may lie there, such as the run's models; without its manifest nobody takes a snapshot for whole
        found = sorted(filter(is_of_a_server, folder.sizes()), key=lambda name: not name.endswith(".json"))
        folder.remove(found)
