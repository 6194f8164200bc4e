"""Shards in an object store, as `RemoteShards` fetches them."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from paceline.core.errors import DataError, Stopped
from paceline.data.dataset import Rows
from paceline.data.manifest import FileName, Manifest
from paceline.data.shard_store import ShardStore
from paceline.rpc.retries import Patient
from paceline.worker.startup.streamed_shards import TURN, Span, cut

_LOOK_EVERY, _SAY_EVERY = 1.0, 10.0
"""Seconds between two looks for a manifest, and between two lines."""
_GAP = 64 << 10
"""Bytes between two spans that are fetched as well, since a call takes longer than they do."""


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
