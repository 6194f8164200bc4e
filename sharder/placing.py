"""Where shards are written, and the object store that they are sent to."""

import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from paceline.core.errors import ConfigError, UsageError
from paceline.core.settings.config import Config
from paceline.data.progress import Progress
from paceline.data.shard_store import ShardStore
from paceline.rpc.retries import Patient


class Place(NamedTuple):
    """A folder here, and the store that gets what is in it; None: they stay here."""

    folder: Path
    store: ShardStore | None


@contextmanager
def placed(out: str | None, config: Config, progress: Progress) -> Iterator[Place]:
    """What `out` and data.shards_at say; a folder that nobody named lasts as long as the block. UsageError where neither is
    given, ConfigError where they are two URLs; errors of a store as for `ShardStore`."""
    url = config.data.shards_at
    if out is not None and "://" in out:
        if url not in (None, out):
            raise ConfigError(f"--out is {out}, but data.shards_at is {url}. Leave one of them out.")
        out, url = None, out
    if url is None:
        if out is None:
            raise UsageError("Nothing says where the shards go. Give --out FOLDER, or set data.shards_at to a URL.")
        yield Place(Path(out), None)
        return
    store = ShardStore(url, Patient(threading.Event(), lambda event, **facts: progress.say(f"{event}: {facts['why']}")))
    if out is not None:
        yield Place(Path(out), store)
        return
    with tempfile.TemporaryDirectory(prefix="paceline-shards-") as folder:
        yield Place(Path(folder) / "shards", store)
