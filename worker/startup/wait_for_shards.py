"""How a worker and the evaluator get at their shards, and how long they wait for them."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, Stopped
from paceline.data.shards import Shards, is_there, open_shards
from paceline.worker.startup.start import Start
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
        client = ShardClient(server, start.credentials, time.monotonic() + config.deadline, stop, say)
        shards: Shards = RemoteShards(told.shards, client, say)
    else:
        shards = wait_for_shards(told.shards, stop, say)
    if len(shards) < config.workers:
        raise ConfigError(
            f"The run has {config.workers} workers but only {len(shards)} shards in {server or told.shards}: every "
            f"worker needs one. Write more: paceline shard --set data.shards={config.workers} --fresh."
        )
    return shards


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
