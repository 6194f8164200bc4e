"""A folder of shards in an object store: what is in it is named as on disk, and its manifest is written last."""

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.core.errors import DataError, PacelineError
from paceline.data.dataset import Rows
from paceline.data.files import reading
from paceline.data.manifest import FIX, MANIFEST, MAX_BYTES, Manifest, parse_manifest
from paceline.data.progress import SILENT, Progress
from paceline.data.shard_writer import check_names
from paceline.data.shards import Shards, open_shards
from paceline.data.stored_folder import StoredFolder

COUNTS = "feature_counts.npy"
"""Next to the manifest, where rows are sparse: how many training examples have each feature (D,)."""


class ShardStore(StoredFolder):
    """Shards in the folder that a URL names. Errors as there."""

    what = "shards"

    def find(self) -> Manifest | None:
        """The manifest; None where there is none, so that the folder is empty or half-written. DataError: it is damaged."""
        content = self.content(MANIFEST, MAX_BYTES)
        return None if content is None else parse_manifest(content, f"{self.url}/{MANIFEST}")

    def whole(self) -> Manifest | None:
        """The same. DataError where a file lacks or has another size than the manifest's, or where other things are here."""
        manifest, sizes = self.find(), self._sizes()
        for name, entry in manifest.entries().items() if manifest is not None else ():
            for file, described in entry.files.items():
                if (size := sizes.get(path := f"{name}/{file}.npy")) != described.bytes:
                    seen = "is missing" if size is None else f"has {size:,} bytes, expected {described.bytes:,}"
                    raise DataError(f"{self.url}/{path} {seen}. {FIX}")
        return manifest

    def read(self, path: str, spans: Sequence[tuple[int, int]]) -> list[bytes]:
        """These bytes of a file, each from the first to before the second. DataError where the file is missing or too short."""
        starts, stops = [start for start, _ in spans], [stop for _, stop in spans]
        paths = [f"{self._root}/{path}"] * len(spans)
        found: list[bytes] = self._called(lambda: self._files.cat_ranges(paths, starts, stops, on_error="raise"))
        if any(len(content) != stop - start for content, (start, stop) in zip(found, spans, strict=True)):
            raise DataError(f"{self.url}/{path} is damaged: it has fewer bytes than expected. {FIX}")
        return found

    def counts(self, width: int) -> Rows:
        """How many training examples have each of `width` features (width,)."""
        content = self.content(COUNTS, 8 * width + 1024) or b""
        with reading(f"{self.url}/{COUNTS}", FIX):
            found: Rows = np.load(io.BytesIO(content), allow_pickle=False)
            if (found.dtype, found.shape) != (np.dtype(np.int64), (width,)):
                raise ValueError(f"it is not the counts of {width:,} features")
        return found

    def send(self, folder: Path, progress: Progress = SILENT) -> None:
        """Copies whole shards to the store, the manifest last; until then nobody takes the folder for whole. Removes what
        older shards had besides. DataError where other things are here, DiskError where the store does not take them."""
        shards, old = open_shards(folder), self._sizes()
        progress.stage("sending", sum(entry.examples for entry in shards.manifest.entries().values()))
        if MANIFEST in old:
            self.remove([MANIFEST])
        sent = {COUNTS} if shards.manifest.shards[0].columns is not None else set()
        for name in sent:
            self.put_content(name, _counts(shards))
        for name, entry in shards.manifest.entries().items():
            sent |= {f"{name}/{file}.npy" for file in entry.files}
            for file in entry.files:
                self.put(folder, f"{name}/{file}.npy")
            progress.advance(entry.examples)
        beside = {path.name for path in folder.iterdir() if path.is_file()} - {MANIFEST}
        for name in (*sorted(beside), MANIFEST):
            self.put(folder, name)
        self.remove(set(old) - sent - beside - {MANIFEST})

    def _sizes(self) -> dict[str, int]:
        """The same as `sizes`. DataError where a file is not of shards."""
        sizes = self.sizes()
        check_names(self.url, {name.partition("/")[0] for name in sizes} - {COUNTS})
        return sizes

    def _refusal(self, error: Exception, right: str) -> PacelineError:
        found = super()._refusal(error, right)
        if isinstance(found, DataError) and isinstance(error, FileNotFoundError):
            return DataError(f"A file of the shards in {self.url} is missing: {error}. {FIX}")
        return found


def _counts(shards: Shards) -> bytes:
    stream = io.BytesIO()
    np.save(stream, shards.feature_counts())
    return stream.getvalue()
