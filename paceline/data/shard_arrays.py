"""Writes the arrays of shards: one reading of the examples, every checksum taken on the way."""

import hashlib
import io
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from paceline.data.dataset import Array, Labelled, Selection, is_sparse
from paceline.data.manifest import OWN, FileEntry, FileName
from paceline.data.progress import Progress

Files = dict[FileName, FileEntry]
OPEN = 64
"""Shards that are written in one pass: each has up to six files open."""
THREADS = 2
SEALS = 16
"""Shards that are brought to the disk at a time: it commits them together."""


def write_arrays(draft: Path, parts: Mapping[str, Selection], progress: Progress) -> dict[str, Files]:
    """Writes each part's arrays to a new folder of its name in `draft`, rows in rising order, and says what is in the
    files. Reads the source once, in pieces, however many parts there are. OSError where the disk is full."""
    sources = {id(part.source): part.source for part in parts.values()}
    found: dict[str, Files] = {}
    for source in sources.values():
        names = [name for name, part in parts.items() if part.source is source]
        for first in range(0, len(names), OPEN):
            found |= _pass_over(source, draft, {name: parts[name] for name in names[first : first + OPEN]}, progress)
    return found


def _pass_over(source: Labelled, draft: Path, parts: Mapping[str, Selection], progress: Progress) -> dict[str, Files]:
    """One reading of a set, from which each part takes its rows."""
    with ExitStack() as stack, ThreadPoolExecutor(THREADS) as pool:
        writers = [stack.enter_context(PartWriter(draft / name, part)) for name, part in parts.items()]
        for start, stop in source.pieces():
            progress.advance(sum(pool.map(lambda writer: writer.append(start, stop), writers)))  # noqa: B023
            source.release()
        with ThreadPoolExecutor(SEALS) as sealing:
            return dict(zip(parts, sealing.map(PartWriter.seal, writers), strict=True))


class PartWriter:
    """The files of one shard or part while they are written."""

    def __init__(self, folder: Path, part: Selection) -> None:
        folder.mkdir()
        self._folder = folder
        self._part = part.pick(np.argsort(part.rows, kind="stable"))
        self._columns: dict[FileName, _Column] = {}
        self._stored = 0

    def __enter__(self) -> "PartWriter":
        count, source = len(self._part), self._part.source
        shapes: dict[FileName, tuple[np.dtype[Any], tuple[int, ...]]] = {
            "labels": (source.labels.dtype, (count, *source.labels.shape[1:])),
            "ids": (np.dtype(np.int64), (count,)),
        }
        if source.weights is not None:
            shapes[OWN] = (source.weights.dtype, (count,))
        if is_sparse(source.features):
            ends = source.features.indptr
            stored = int((ends[self._part.rows + 1] - ends[self._part.rows]).sum())
            index = np.dtype(np.int32 if max(stored, source.features.shape[1]) < 1 << 31 else np.int64)
            shapes |= {"indptr": (index, (count + 1,)), "indices": (index, (stored,))}
            shapes |= {"values": (source.features.dtype, (stored,))}
        else:
            shapes["features"] = (source.features.dtype, (count, *source.features.shape[1:]))
        self._columns = {name: _Column(self._folder / f"{name}.npy", *shape) for name, shape in shapes.items()}
        if is_sparse(source.features):
            self._columns["indptr"].append(np.zeros(1))
        return self

    def __exit__(self, *error: object) -> None:
        for column in self._columns.values():
            column.close()

    def append(self, start: int, stop: int) -> int:
        """Takes what belongs to this part of the source's rows from `start` to before `stop`; how many these are."""
        first, last = np.searchsorted(self._part.rows, (start, stop))
        part = self._part.pick(slice(first, last))  # type: ignore[arg-type]
        features = part.features
        if is_sparse(features):
            self._columns["indptr"].append(features.indptr[1:] + np.int64(self._stored))
            self._columns["indices"].append(features.indices)
            self._columns["values"].append(features.data)
            self._stored += len(features.data)
        else:
            self._columns["features"].append(features)
        self._columns["labels"].append(part.labels)
        self._columns["ids"].append(part.ids)
        if part.weights is not None:
            self._columns[OWN].append(part.weights)
        return len(part)

    def seal(self) -> Files:
        """Brings the files to the disk."""
        found = {name: column.seal() for name, column in self._columns.items()}
        sync(self._folder)
        return found


class _Column:
    """A .npy file of known shape that grows row by row; its checksum is taken on the way."""

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self._stream = path.open("xb", buffering=0)
        self._dtype = dtype
        self._shape = shape
        self._digest = hashlib.sha256()
        header = io.BytesIO()
        description = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(header, description)
        self._write(memoryview(header.getvalue()))

    def append(self, rows: Array) -> None:
        self._write(np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8).data)

    def seal(self) -> FileEntry:
        os.fsync(self._stream.fileno())
        return FileEntry(
            bytes=self._stream.tell(), dtype=self._dtype.str, shape=self._shape, sha256=self._digest.hexdigest()
        )

    def close(self) -> None:
        self._stream.close()

    def _write(self, content: memoryview) -> None:
        self._digest.update(content)
        while content:
            content = content[self._stream.write(content) :]


def sync(path: Path) -> None:
    """Makes a file's bytes, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
