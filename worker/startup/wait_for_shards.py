"""How a worker and the evaluator get at their shards, in a folder or an object store, and how long they wait for them."""

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from paceline.core.errors import ConfigError, DataError, Stopped
from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.manifest import FileName, Manifest
from paceline.data.shard_store import ShardStore
from paceline.data.shards import Shards, is_there, open_shards
from paceline.rpc.retries import Patient
from paceline.worker.startup.start import Start
from paceline.worker.startup.streamed_shards import TURN, RemoteShards, ShardClient, Span, cut

_LOOK_EVERY, _SAY_EVERY = 1.0, 10.0
"""Seconds between two looks for a manifest, and between two lines."""
_GAP = 64 << 10
"""Bytes between two spans that are fetched as well, since a call takes longer than they do."""


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


class StoredShards:
    """The shards at a URL. Errors as for `ShardStore`; Stopped. Not thread-safe."""

    def __init__(self, url: str, stop: threading.Event, say: Callable[..., None]) -> None:
        self._store = ShardStore(url, Patient(stop, say))
        self._stop = stop
        self._say = say
        self._fingerprint = ""
        self.address = self._store.url

    def manifest(self) -> Manifest:
        """The manifest, by which later calls know whether the shards are still the same. Waits for it."""
        said = time.monotonic()
        while (found := self._store.find()) is None:
            if time.monotonic() - said >= _SAY_EVERY:
                said = time.monotonic()
                self._say("waiting for shards; write them with: paceline shard --out URL", folder=self.address)
            if self._stop.wait(_LOOK_EVERY):
                raise Stopped("The process got a signal to stop.")
        self._fingerprint = found.fingerprint
        return found

    def counts(self, width: int) -> Rows:
        """How many training examples have each of `width` features (width,)."""
        found = self._store.counts(width)
        self.check()
        return found

    def fetch(self, name: str, file: FileName, spans: Sequence[Span], take: Callable[[bytes], Any]) -> None:
        """Hands these bytes of a file to `take`, in order; where spans overlap, more than once. Each span begins after the one
        before it does."""
        rest, said = [span for span in spans if span[0] < span[1]], time.monotonic()
        try:
            while rest:
                turn, rest = cut(rest, TURN)
                near = _near(turn)
                blocks = [(group[0][0], max(stop for _, stop in group)) for group in near]
                for group, content in zip(near, self._store.read(f"{name}/{file}.npy", blocks), strict=True):
                    for start, stop in group:
                        take(content[start - group[0][0] : stop - group[0][0]])
                if self._stop.is_set():
                    raise Stopped("The process got a signal to stop.")
                if time.monotonic() - said >= _SAY_EVERY:
                    said = time.monotonic()
                    self._say("fetching", what=f"{name}/{file}", bytes_left=sum(stop - start for start, stop in rest))
        except DataError:
            self.check()
            raise

    def check(self) -> None:
        """DataError where other shards have replaced these since the manifest came."""
        found = self._store.find()
        now = "none" if found is None else found.fingerprint[:12]
        if found is None or found.fingerprint != self._fingerprint:
            raise DataError(
                f"The shards in {self.address} ({now}) are not those that this process began with "
                f"({self._fingerprint[:12]}): somebody replaces them. Start the processes of the run again."
            )


def _near(spans: Sequence[Span]) -> list[list[Span]]:
    """The spans in groups, each of which is fetched at once."""
    found: list[list[Span]] = []
    for span in spans:
        if found and span[0] - found[-1][-1][1] <= _GAP:
            found[-1].append(span)
        else:
            found.append([span])
    return found
