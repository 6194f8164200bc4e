"""Writes a folder of shards so that it is there whole or not at all, whenever the power fails."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paceline.core.errors import DataError, DiskError
from paceline.data.dataset import Array, PartName, Selection, is_class_label
from paceline.data.manifest import MANIFEST, FileEntry, Manifest, Recipe, ShardEntry, render
from paceline.data.shards import is_there, open_shards

Say = Callable[[str], None]


def already_there(folder: Path, recipe: Recipe) -> Manifest | None:
    """The manifest of shards that this very recipe made; None where the folder is empty or not there yet. DataError
    where something else is in it, and what."""
    with _disk_errors(folder):
        if not is_there(folder):
            _check_replaceable(folder)
            if not folder.exists() or not any(folder.iterdir()):
                return None
    manifest = open_shards(folder).manifest
    then, now = manifest.recipe.model_dump(), recipe.model_dump()
    changed = [f"{key} was {_brief(then[key])} and is now {_brief(now[key])}" for key in now if then[key] != now[key]]
    if changed:
        raise DataError(
            f"The shards in {folder} were made otherwise: {'; '.join(changed)}. "
            "Give another folder, or replace them with `paceline shard --fresh`."
        )
    return manifest


def write_shards(
    folder: Path,
    source: str,
    recipe: Recipe,
    shards: Sequence[Selection],
    parts: Mapping[PartName, Selection],
    say: Say = lambda line: None,
) -> Manifest:
    """Writes everything beside `folder`, then puts it in the place of whatever shards are there. DiskError where the
    disk is full or not writable, DataError where the folder holds other things; nothing is left behind then."""
    with _disk_errors(folder), _beside(folder) as draft:
        written = [_write_shard(draft / f"shard-{number}", shard, say) for number, shard in enumerate(shards)]
        kept = {name: _write_shard(draft / name, part, say) for name, part in parts.items()}
        manifest = Manifest(
            source=source,
            recipe=recipe,
            train_examples=sum(entry.examples for entry in written),
            shards=tuple(written),
            parts=kept,
        )
        with (draft / MANIFEST).open("wb") as stream:
            stream.write(render(manifest))
            stream.flush()
            os.fsync(stream.fileno())
        _sync_folder(draft)
    return manifest


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder that takes the place of `folder` at the end of the block, or vanishes when the block fails."""
    folder = folder.absolute()
    _check_replaceable(folder)
    draft = folder.with_name(f".{folder.name}.writing-{uuid.uuid4().hex[:8]}")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        draft.mkdir()
        yield draft
        _replace(folder, draft)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DiskError(
            f"Can't write the shards to {folder}: {error.strerror or error}. Free some space or give another folder."
        ) from error


def _sweep(folder: Path) -> None:
    """Removes what a sharder that was killed has left behind."""
    for leftover in folder.parent.iterdir():
        if leftover.name.startswith(f".{folder.name}.writing-"):
            shutil.rmtree(leftover, ignore_errors=True)


def _replace(folder: Path, draft: Path) -> None:
    """Swaps the finished draft in; until the last rename the old shards are whole beside it."""
    old = folder.with_name(f"{draft.name}-old")
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    _sync_folder(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(folder: Path) -> None:
    """Refuses to replace a folder that holds anything but shards."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; give the shards a folder of their own.")
    for found in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (found.name in (MANIFEST, "validation", "test") or found.name.startswith("shard-")):
            raise DataError(f"{folder} holds {found.name}, which is no shard; give the shards a folder of their own.")


def _write_shard(folder: Path, selection: Selection, say: Say) -> ShardEntry:
    folder.mkdir()
    labels = selection.labels
    entry = ShardEntry(
        examples=len(selection),
        classes=_histogram(labels),
        files={
            "features": _write_array(folder / "features.npy", selection.features),
            "labels": _write_array(folder / "labels.npy", labels),
            "ids": _write_array(folder / "ids.npy", selection.ids),
        },
    )
    _sync_folder(folder)
    say(f"{folder.name}: {entry.examples:,} examples")
    return entry


def _write_array(path: Path, array: Array) -> FileEntry:
    with path.open("w+b") as stream:
        np.save(stream, array, allow_pickle=False)
        stream.flush()
        os.fsync(stream.fileno())
        stream.seek(0)
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        size = stream.seek(0, os.SEEK_END)
    return FileEntry(bytes=size, dtype=array.dtype.str, shape=array.shape, sha256=digest)


def _histogram(labels: Array) -> dict[str, int]:
    """Examples of each class."""
    if not is_class_label(labels):
        return {}
    return {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}


def _sync_folder(folder: Path) -> None:
    """Makes names in the folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _brief(value: object) -> str:
    return f"{value:.12}" if isinstance(value, str) and len(value) == 64 else repr(value)
