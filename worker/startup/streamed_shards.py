"""Shards that are fetched, as from a `sharder serve` that streams them: this process keeps copies of what it needs in its own
folder."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np

from paceline.core.errors import DataError, DiskError
from paceline.data.dataset import Array, PartName, Rows
from paceline.data.manifest import MANIFEST, MAX_BYTES, OWN, FileEntry, FileName, Manifest, parse_manifest, render
from paceline.data.sampler import locate, starts_of
from paceline.data.shards import Shards, check_file, is_there, map_file, open_shards, stacked
from paceline.data.whole_file import replacing
from paceline.rpc.auth import Credentials
from paceline.rpc.channel import open_channel
from paceline.rpc.grpc_plane import Moving
from paceline.rpc.outages import Outage
from paceline.rpc.protocol_version import PROTOCOL
from paceline.rpc.retries import retried
from paceline.rpc.watchdog import IDLE
from paceline.v1 import shard_service_pb2 as pb
from paceline.v1.shard_service_pb2_grpc import ShardServiceStub

T = TypeVar("T")
Span = tuple[int, int]
"""Bytes of a file, from the first to before the second."""
TURN = 16 << 20
"""Most that is asked for in one call (bytes); what a broken stream has brought is kept."""
_TRIES = 3
"""Times that a file is fetched whose checksum is wrong."""
_SAY_EVERY = 10.0


class ShardClient:
    """The shard server of one run; calls are repeated until they are answered. Not thread-safe."""

    def __init__(
        self, address: str, credentials: Credentials, patience: float, stop: threading.Event, say: Callable[..., None]
    ) -> None:
        """`patience`: how long a call that nobody answers is repeated (seconds)."""
        self.address = address
        self._stub = ShardServiceStub(open_channel(address, credentials))
        self._patience = patience
        self._stop = stop
        self._say = say
        self._outage = Outage(f"the shard server at {address}", say)
        self._fingerprint = ""

    def manifest(self) -> Manifest:
        """The manifest of what is served; later calls refer to it. Waits for a server that has not started, or that writes
        shards."""
        request = pb.ManifestRequest(protocol=PROTOCOL)
        content = self._whole(lambda: self._stub.Manifest(request), MAX_BYTES, "the manifest")
        manifest = parse_manifest(content, f"the manifest that {self.address} sent")
        self._fingerprint = manifest.fingerprint
        return manifest

    def counts(self, width: int) -> Rows:
        """How many training examples have each of `width` features (width,)."""
        request = pb.CountsRequest(fingerprint=self._fingerprint)
        what = f"the counts of {width:,} features"
        content = self._whole(lambda: self._stub.Counts(request), 8 * width, what)
        if len(content) != 8 * width:
            raise DataError(
                f"{self.address} sent {len(content):,} bytes for the counts of {width:,} features of 8 bytes."
            )
        return np.frombuffer(content, "<i8")

    def fetch(self, name: str, file: FileName, spans: Sequence[Span], take: Callable[[bytes], Any]) -> None:
        """Hands these bytes of a file to `take`, in order and each once, in as many calls as it needs."""
        rest = [span for span in spans if span[0] < span[1]]

        def turn() -> None:
            nonlocal rest
            asked = cut(rest, TURN)[0]
            ranges = [pb.ByteRange(start=start, stop=stop) for start, stop in asked]
            request = pb.FetchRequest(fingerprint=self._fingerprint, name=name, file=file, ranges=ranges)
            for data in self._received(self._stub.Fetch(request)):
                if len(data) > _total(rest):
                    raise DataError(
                        f"{self.address} sent more of {name}/{file} than the worker asked for, so it is not a "
                        "shard server."
                    )
                rest = cut(rest, len(data))[1]
                take(data)

        said = time.monotonic()
        while rest:
            before = rest
            self._retried(turn)
            if time.monotonic() - said >= _SAY_EVERY:
                said = time.monotonic()
                self._say("fetching", what=f"{name}/{file}", bytes_left=_total(rest))
            if rest is before:
                raise DataError(
                    f"{self.address} sent no data of {name}/{file}, of which {_total(rest):,} bytes are still missing."
                )

    def check(self) -> None:
        """Nothing: each call names the shards, and the server refuses others."""

    def _whole(self, begin: Callable[[], Any], most: int, what: str) -> bytes:
        """All that a stream brings. DataError where that is more than it may be."""

        def attempt() -> bytes:
            found, messages = bytearray(), begin()
            for data in self._received(messages):
                found += data
                if len(found) > most:
                    messages.cancel()
                    raise DataError(
                        f"{self.address} sent more than {most:,} bytes as {what}, so it is not the run's shard server. Correct "
                        "the address."
                    )
            return bytes(found)

        return self._retried(attempt)

    def _received(self, messages: Any) -> Iterator[bytes]:
        """What a stream brings, as long as something comes; raises what the far side raised."""
        moving = Moving(IDLE)
        with moving.watched(messages):
            for message in moving.came(messages):
                yield message.data
                if self._stop.is_set():
                    messages.cancel()

    def _retried(self, attempt: Callable[[], T]) -> T:
        return retried(attempt, self._patience, self._outage, self._stop, "a fetch")


class ShardSource(Protocol):
    """Where shards are fetched from. All calls may take long, and raise what they say and Stopped."""

    address: str

    def manifest(self) -> Manifest:
        """The manifest; waits for shards that are still to be made."""

    def counts(self, width: int) -> Rows:
        """How many training examples have each of `width` features (width,)."""

    def fetch(self, name: str, file: FileName, spans: Sequence[Span], take: Callable[[bytes], Any]) -> None:
        """Hands these bytes of a file to `take`, in order."""

    def check(self) -> None:
        """DataError where other shards have replaced these since the manifest came."""


class RemoteShards(Shards):
    """Fetches a shard or part when it is first asked for. A copy appears in the folder once it is whole and its checksums are
    the manifest's, and is found there by the next process; one process at a time uses the folder. All may raise DiskError,
    ServersGone and Stopped. Not thread-safe."""

    def __init__(self, folder: Path, client: ShardSource, say: Callable[..., None]) -> None:
        """DataError where the folder is a sharder's own."""
        if is_there(folder):
            raise DataError(
                f"{folder} holds shards that a sharder wrote here; the copies from {client.address} need another "
                "folder. Give one with --shards, or set data.source=files to use these shards."
            )
        super().__init__(folder, client.manifest())
        self._client = client
        self._say = say
        self._sound: set[str] = set()
        """Copies whose checksums have been compared."""

    def ids(self, number: int) -> Rows:
        """The ids of a shard; fetches no more than these if there is no copy of the shard."""
        name = f"shard-{number}"
        if self._has(name):
            return super().ids(number)
        path = self.folder / ".ids" / f"{name}.npy"
        if str(path) not in self._sound:
            self._fetch_file(name, "ids", path)
            self._sound.add(str(path))
        return map_file(path, self.entry(name).files["ids"])

    def rows(self, positions: Rows) -> tuple[Any, Array]:
        """Fetches only these."""
        found = locate(starts_of(self.manifest.sizes), positions)
        features, labels = [], []
        for number in np.unique(found.shards):
            rows = found.rows[found.shards == number]
            features.append(self._features(f"shard-{number}", rows))
            labels.append(self._elements(f"shard-{number}", "labels", rows, rows + 1))
        self._client.check()
        return stacked(features), np.concatenate(labels)

    def _own(self, number: int, rows: Rows) -> Array:
        return self._elements(f"shard-{number}", OWN, rows, rows + 1)

    def feature_counts(self) -> Rows:
        """Asks for them where the shards are."""
        return self._client.counts(self.manifest.shards[0].columns or 0)

    def verify(self, which: int | PartName) -> None:
        """Fetches it if it is missing or damaged."""
        name = f"shard-{which}" if isinstance(which, int) else which
        self._sound.discard(name)
        self._ensure(name)

    def keep(self) -> Shards:
        """Fetches all that is missing; the folder is then as the sharder's, for all processes of this machine."""
        for name in self.manifest.entries():
            self._ensure(name)
        with replacing(self.folder / MANIFEST, "the manifest of the shards") as temporary:
            temporary.write_bytes(render(self.manifest))
        return open_shards(self.folder)

    def _map(self, name: str, file: FileName) -> Array:
        self._ensure(name)
        return super()._map(name, file)

    def _ensure(self, name: str) -> None:
        """Makes sure that there is an intact copy of the shard or part."""
        if self._has(name):
            return
        began, files = time.monotonic(), self.entry(name).files
        size, draft = sum(described.bytes for described in files.values()), self._draft(name)
        self._say("fetching", what=name, bytes=size, server=self._client.address)
        for file in files:
            self._fetch_file(name, file, draft / f"{file}.npy")
        with _disk_errors(draft):
            draft.rename(self.folder / name)
        self._sound.add(name)
        self._say("fetched", what=name, bytes=size, seconds=round(time.monotonic() - began, 3))

    def _has(self, name: str) -> bool:
        """Whether there is a copy that is right; what is right of a damaged one goes back to the draft."""
        files, copy = self.entry(name).files, self.folder / name
        if name in self._sound or not copy.is_dir():
            return name in self._sound
        right = [self._is_right(copy / f"{file}.npy", described) for file, described in files.items()]
        if all(right):
            self._sound.add(name)
            return True
        with _disk_errors(copy):
            shutil.rmtree(self._draft(name), ignore_errors=True)
            copy.rename(self._draft(name))
        return False

    def _draft(self, name: str) -> Path:
        return self.folder / f".{name}.fetching"

    def _fetch_file(self, name: str, file: FileName, path: Path) -> None:
        """One file, its checksum compared. What an earlier try has left of it is kept, unless that turns out to be wrong."""
        described, part = self.entry(name).files[file], path.with_suffix(".part")
        if path.exists() and self._is_right(path, described):
            return
        for _ in range(_TRIES):
            self._download(name, file, part)
            if self._is_right(part, described):
                with _disk_errors(path):
                    part.rename(path)
                return
            self._client.check()
        raise DataError(
            f"{name}/{file} came damaged {_TRIES} times from {self._client.address}: somebody changes it, or a disk "
            "or the network is faulty. Make the shards there again."
        )

    def _download(self, name: str, file: FileName, part: Path) -> None:
        """Appends the rest of the file."""
        size = self.entry(name).files[file].bytes
        with _disk_errors(part):
            part.parent.mkdir(parents=True, exist_ok=True)
            if part.exists() and part.stat().st_size > size:
                part.unlink()
            with part.open("ab") as stream:
                self._client.fetch(name, file, [(stream.tell(), size)], stream.write)

    def _is_right(self, path: Path, described: FileEntry) -> bool:
        """Whether the file's checksum is right; removes it otherwise."""
        try:
            check_file(path, described)
        except DataError as error:
            self._say("a copy is damaged and is fetched again", why=str(error))
            with _disk_errors(path):
                path.unlink(missing_ok=True)
            return False
        return True

    def _features(self, name: str, rows: Rows) -> Any:
        columns = self.entry(name).columns
        if columns is None:
            return self._elements(name, "features", rows, rows + 1)
        from scipy.sparse import csr_array

        pairs, stored = self._elements(name, "indptr", rows, rows + 2), self.entry(name).files["values"].shape[0]
        if len(pairs) and (pairs[0] < 0 or pairs[-1] > stored or (np.diff(pairs) < 0).any()):
            raise DataError(
                f"{name}/indptr came damaged from {self._client.address}: its rows do not rise from 0 to the {stored:,} "
                "values that the manifest names. Make the shards there again."
            )
        starts, stops = pairs.reshape(-1, 2).T
        indices, values = (self._elements(name, file, starts, stops) for file in ("indices", "values"))
        return csr_array((values, indices, starts_of((stops - starts).tolist())), (len(rows), columns))

    def _elements(self, name: str, file: FileName, starts: Rows, stops: Rows) -> Array:
        """Elements of an array along its first axis, several stretches end to end."""
        described, found = self.entry(name).files[file], bytearray()
        dtype = np.dtype(described.dtype)
        each = dtype.itemsize * int(np.prod(described.shape[1:]))
        header = described.bytes - described.shape[0] * each
        is_first, is_last = np.ones((2, len(starts)), np.bool_)
        is_first[1:] = is_last[:-1] = starts[1:] != stops[:-1]  # neighbours are fetched as one
        stretches = zip(starts[is_first], stops[is_last], strict=True)
        spans = [(header + int(a) * each, header + int(b) * each) for a, b in stretches]
        self._client.fetch(name, file, spans, found.extend)
        return np.frombuffer(found, dtype).reshape(int((stops - starts).sum()), *described.shape[1:])


@contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"Can't write a copy of the shards to {path}: {error.strerror or error}. Free some space or give --shards another "
            "folder."
        ) from error


def _total(spans: Sequence[Span]) -> int:
    return sum(stop - start for start, stop in spans)


def cut(spans: Sequence[Span], count: int) -> tuple[list[Span], list[Span]]:
    """The first `count` bytes of the spans, and those after them."""
    first: list[Span] = []
    for number, (start, stop) in enumerate(spans):
        if stop - start > count:
            cut = start + count
            return first + ([(start, cut)] if count else []), [(cut, stop), *spans[number + 1 :]]
        first.append((start, stop))
        count -= stop - start
    return first, []
