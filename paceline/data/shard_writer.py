"""Writes a folder of shards so that it is there whole or not at all, whenever the power fails."""

import hashlib
import os
import shutil
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from paceline.core.errors import DataError, DiskError
from paceline.data.dataset import Array, PartName, Rows, Selection, is_class_label
from paceline.data.manifest import FILES, MANIFEST, FileEntry, FileName, Manifest, Recipe, Rule, ShardEntry, render
from paceline.data.sampler import proportions
from paceline.data.shards import is_there, open_shards

Say = Callable[[str], None]
SEALS = 16
"""Files that are brought to the disk at a time: it commits them together, and while the next ones are written."""


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
    clusters: Sequence[Rows] = (),
    rule: Rule | None = None,
    seconds: float | None = None,
) -> Manifest:
    """Writes everything beside `folder`, then puts it in the place of whatever shards are there. `clusters`: for each
    shard, the cluster of each of its examples; `rule` and `seconds` stand in the manifest. DiskError where the disk is
    full or not writable, DataError where the folder holds other things; nothing is left behind then."""
    ids, holders = np.unique(np.concatenate([shard.ids for shard in shards]), return_counts=True)
    twice = ids[holders > 1]
    lens = proportions(len(ids), recipe.weights or (1,) * len(shards)) if len(twice) else [len(one) for one in shards]
    with _disk_errors(folder), _beside(folder) as draft, ThreadPoolExecutor(SEALS) as pool:
        everything = {f"shard-{number}": shard for number, shard in enumerate(shards)} | dict(parts)
        saved = {name: _save(draft / name, selection, pool, say) for name, selection in everything.items()}
        files = {name: {file: seal.result() for file, seal in seals.items()} for name, seals in saved.items()}
        list(pool.map(_sync, [draft / name for name in everything]))
        manifest = Manifest(
            source=source,
            recipe=recipe,
            rule=rule,
            seconds=seconds,
            train_examples=len(ids),
            duplicates=tuple(twice.tolist()),
            shards=tuple(
                ShardEntry(
                    examples=len(shard),
                    epoch_len=min(lens[number], len(shard)),
                    duplicates=int(np.isin(shard.ids, twice).sum()),
                    classes=_classes(shard),
                    clusters=_counts(clusters[number]) if clusters else {},
                    files=files[f"shard-{number}"],
                )
                for number, shard in enumerate(shards)
            ),
            parts={
                name: ShardEntry(examples=len(part), epoch_len=len(part), classes=_classes(part), files=files[name])
                for name, part in parts.items()
            },
        )
        (draft / MANIFEST).write_bytes(render(manifest))
        _sync(draft / MANIFEST)
        _sync(draft)
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
    _sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(folder: Path) -> None:
    """Refuses to replace a folder that holds anything but shards."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; give the shards a folder of their own.")
    for found in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not (found.name in (MANIFEST, "validation", "test") or found.name.startswith("shard-")):
            raise DataError(f"{folder} holds {found.name}, which is no shard; give the shards a folder of their own.")


def _save(folder: Path, selection: Selection, pool: Executor, say: Say) -> dict[FileName, Future[FileEntry]]:
    """Writes a shard's arrays; what the manifest says of them comes while the next ones are written."""
    folder.mkdir()
    seals: dict[FileName, Future[FileEntry]] = {}
    for file in FILES:
        array: Array = getattr(selection, file)
        np.save(folder / f"{file}.npy", array, allow_pickle=False)
        seals[file] = pool.submit(_seal, folder / f"{file}.npy", array.dtype.str, array.shape)
    say(f"{folder.name}: {len(selection):,} examples")
    return seals


def _seal(path: Path, dtype: str, shape: tuple[int, ...]) -> FileEntry:
    """Brings a file to the disk and takes its checksum."""
    with path.open("rb") as stream:
        os.fsync(stream.fileno())
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
        return FileEntry(bytes=stream.seek(0, os.SEEK_END), dtype=dtype, shape=shape, sha256=digest)


def _classes(selection: Selection) -> dict[str, int]:
    labels = selection.labels
    return _counts(labels) if is_class_label(labels) else {}


def _counts(labels: Array) -> dict[str, int]:
    """Examples of each class or cluster."""
    return {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}


def _sync(path: Path) -> None:
    """Makes a file's bytes, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _brief(value: object) -> str:
    return f"{value:.12}" if isinstance(value, str) and len(value) == 64 else repr(value)
