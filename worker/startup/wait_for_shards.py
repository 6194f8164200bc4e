"""How a worker and the evaluator get at their shards, and how long they wait for them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, Stopped
from paceline.core.settings.config import Config
from paceline.data.shards import Shards, is_there, open_shards
from paceline.worker.startup.start import Start
from paceline.worker.startup.stored_shards import StoredShards
from paceline.worker.startup.streamed_shards import RemoteShards, ShardClient


def find_shards(start: Start[Any], stop: threading.Event, say: Callable[..., None]) -> Shards:
    """Opens the shards as soon as they, or their server, exist; says every 10 s that it waits."""
    told, config, server = start.told, start.config, start.told.shard_server
    if (config.data.source == "server") != bool(server):
        raise ConfigError(
            f"data.source is {config.data.source}, but you gave {'a' if server else 'no'} --shard-server. Set "
            "data.source=server and give --shard-server HOST:PORT, or neither."
        )
    if server:
        client = ShardClient(server, start.credentials, config.deadline, stop, say)
        shards: Shards = RemoteShards(told.shards, client, say)
    elif config.data.shards_at is not None and not is_there(told.shards):
        shards = RemoteShards(told.shards, StoredShards(config.data.shards_at, stop, say), say)
    else:
        shards = wait_for_shards(told.shards, stop, say)
    if len(shards) < config.workers:
        place = server or config.data.shards_at or told.shards
        raise ConfigError(
            f"The run has {config.workers} workers but only {len(shards)} shards in {place}: every "
            f"worker needs one. Write more: paceline shard --set data.shards={config.workers} --fresh."
        )
    return shards


def whole_shards(config: Config, folder: Path, say: Callable[..., None]) -> Shards:
    """All shards, in this folder; fetches them to it where they are elsewhere (data.shards_at)."""
    if config.data.shards_at is None or is_there(folder):
        return open_shards(folder)
    source = StoredShards(config.data.shards_at, threading.Event(), say)
    return RemoteShards(folder, source, say).keep()


def wait_for_shards(folder: Path, stop: threading.Event, say: Callable[..., None]) -> Shards:
    """Opens the shards in a folder as soon as they exist."""
    said = time.monotonic()
    while not is_there(folder):
        if time.monotonic() - said >= 10:
            said = time.monotonic()
            say("waiting for shards; write them with: paceline shard", folder=str(folder))
        if stop.wait(0.2):
            raise Stopped("The process got a signal to stop.")
    return open_shards(folder)
