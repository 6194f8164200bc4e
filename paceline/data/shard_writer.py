"""Writes a folder of shards so that it exists whole or not at all, whenever the power fails."""

import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.core.errors import DataError, DiskError
from paceline.core.settings.config import Options
from paceline.data.columns import Columns
from paceline.data.dataset import Array, PartName, Rows, Selection, is_class_label, is_sparse
from paceline.data.manifest import MANIFEST, MAX_BYTES, Manifest, Recipe, Rule, ShardEntry, render
from paceline.data.progress import SILENT, Progress
from paceline.data.sampler import lens_of_epoch
from paceline.data.shard_arrays import Files, sync, write_arrays
from paceline.data.shards import is_there, open_shards

NEIGHBOURHOODS, ARRIVED = "neighbourhoods.npz", "arrived.json"
"""Next to the manifest, where the strategy finds clusters: what finds them again, and how many examples have come since."""
Write = Callable[[Path, Mapping[str, Selection], Progress], dict[str, Files]]


class Dealt(NamedTuple):
    """The shards as they were dealt. `clusters`: for each shard the cluster of each of its examples, where there are some;
    `sparse`: the clusters that every shard has; `seconds`: how long it took to decide."""

    shards: Sequence[Selection]
    clusters: Sequence[Rows] = ()
    sparse: Sequence[int] = ()
    seconds: float | None = None
    neighbourhoods: Mapping[str, Array] = {}
    """What finds the cluster of examples that arrive later, as arrays by name; empty where there is none."""


def already_there(folder: Path, recipe: Recipe, but: Collection[str] = ()) -> Manifest | None:
    """The manifest of shards that this very recipe made; None where the folder is empty or does not exist. `but`: keys of
    the recipe that are not known yet. DataError where something else is in it, and what."""
    with _disk_errors(folder):
        if not is_there(folder):
            _check_replaceable(folder)
            if not folder.exists() or not any(folder.iterdir()):
                return None
    return checked_recipe(open_shards(folder).manifest, folder, recipe, but)


def checked_recipe(manifest: Manifest, place: object, recipe: Recipe, but: Collection[str] = ()) -> Manifest:
    """The manifest of the shards in this place. DataError where another recipe made them, and what differs."""
    then, now = dict(manifest.recipe), dict(recipe)
    if then["strategy_file"] is None:  # an earlier release did not note it
        but = (*but, "strategy_file")
    other = [key for key in now if key not in but and then[key] != now[key]]
    changed = [f"{key} was {_brief(then[key])} and is now {_brief(now[key])}" for key in other]
    if changed:
        raise DataError(
            f"The shards in {place} were made with other settings: {'; '.join(changed)}. Give another folder, or "
            "replace them with `paceline shard --fresh`."
        )
    return manifest


def write_shards(
    folder: Path,
    source: str,
    recipe: Recipe,
    dealt: Dealt,
    parts: Mapping[PartName, Selection],
    *,
    rule: Rule | None = None,
    progress: Progress = SILENT,
    write: Write = write_arrays,
    classes: tuple[str, ...] | None = None,
    columns: Columns | None = None,
    as_read: tuple[str, ...] = (),
) -> Manifest:
    """Writes everything next to `folder`, then replaces the shards in it. `write` does the arrays;
    `classes`, `columns` and `as_read` are those of the `Dataset`. DiskError where the disk is full or not writable, DataError
    where the folder holds other things; nothing is left behind then."""
    shards = dealt.shards
    lens, twice, count = lens_of_epoch([shard.ids for shard in shards], recipe.weights)
    everything = {f"shard-{number}": shard for number, shard in enumerate(shards)} | dict(parts)
    for number, shard in enumerate(shards):
        progress.shard(number, len(shard))
    progress.stage("writing", sum(map(len, everything.values())))
    with _disk_errors(folder), _beside(folder) as draft:
        files = write(draft, everything, progress)
        manifest = Manifest(
            source=source,
            recipe=recipe,
            rule=rule,
            seconds=dealt.seconds,
            classes=classes,
            columns=columns,
            as_read=as_read,
            train_examples=count,
            train_weights=_weights(shards),
            duplicates=tuple(twice.tolist()),
            sparse=tuple(dealt.sparse),
            shards=tuple(
                _entry(
                    shard,
                    files[f"shard-{number}"],
                    epoch_len=lens[number],
                    duplicates=int(np.isin(shard.ids, twice).sum()),
                    clusters=_counts(dealt.clusters[number]) if dealt.clusters else {},
                )
                for number, shard in enumerate(shards)
            ),
            parts={name: _entry(part, files[name], epoch_len=len(part)) for name, part in parts.items()},
        )
        if dealt.neighbourhoods:
            np.savez(draft / NEIGHBOURHOODS, **dealt.neighbourhoods)  # type: ignore[arg-type]  # they are no options
            sync(draft / NEIGHBOURHOODS)
        content = render(manifest)
        if len(content) > MAX_BYTES:
            raise DataError(
                f"The manifest of these {len(shards):,} shards would have {len(content):,} bytes, and nobody reads more than "
                f"{MAX_BYTES:,}: it has the count of each class in each shard, and the {len(twice):,} examples that are in "
                "several. Make fewer shards."
            )
        (draft / MANIFEST).write_bytes(content)
        sync(draft / MANIFEST)
        sync(draft)
    for name, part in everything.items():
        progress.say(f"{name}: {len(part):,} examples")
    return manifest


def _weights(shards: Sequence[Selection]) -> dict[str, float] | None:
    """What the examples of all shards count, by class, each once; None where all count alike."""
    found = [shard.weights for shard in shards]
    if any(weights is None for weights in found):
        return None
    _, first = np.unique(np.concatenate([shard.ids for shard in shards]), return_index=True)
    every = np.concatenate([np.asarray(weights, np.float64) for weights in found])[first]
    labels = np.concatenate([shard.labels for shard in shards])[first]
    return {str(label): float(every[labels == label].sum()) for label in np.unique(labels)}


def _entry(part: Selection, files: Files, **more: Any) -> ShardEntry:
    """What the manifest says of a shard or part."""
    labels, features = part.labels, part.source.features
    columns = features.shape[1] if is_sparse(features) else None
    classes = _counts(labels) if is_class_label(labels) else {}
    return ShardEntry(examples=len(part), classes=classes, columns=columns, files=files, **more)


@contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """A new folder that replaces `folder` at the end of the block, or vanishes when the block fails."""
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
    """Swaps the finished draft in; until the last rename the old shards are whole next to it."""
    old = folder.with_name(f"{draft.name}-old")
    if folder.exists():
        folder.rename(old)
    try:
        draft.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise
    sync(folder.parent)
    shutil.rmtree(old, ignore_errors=True)


def _check_replaceable(folder: Path) -> None:
    """Refuses to replace a folder that holds anything but shards."""
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; give the shards a folder.")
    check_names(folder, [found.name for found in folder.iterdir()] if folder.is_dir() else [])


def check_names(place: object, names: Collection[str]) -> None:
    """DataError where one of the names in a folder is none that a sharder gives. `place`: the folder, for people."""
    for name in sorted(names):
        if not (name in (MANIFEST, NEIGHBOURHOODS, ARRIVED, "validation", "test") or name.startswith("shard-")):
            raise DataError(f"{place} holds {name}, which is not a shard; give the shards a folder for themselves.")


def _counts(labels: Array) -> dict[str, int]:
    """Examples of each class or cluster."""
    return {str(label): int(count) for label, count in zip(*np.unique(labels, return_counts=True), strict=True)}


def _brief(value: object) -> str:
    if isinstance(value, Options):
        return repr(value.model_dump())
    return f"{value:.12}" if isinstance(value, str) and len(value) == 64 else repr(value)
