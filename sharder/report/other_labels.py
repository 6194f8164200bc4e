"""Another task's labels in place of the shards' own: how classes are spread that nobody dealt by, like hidden strata."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from paceline.core.errors import DataError
from paceline.data.dataset import Labelled, Rows, Selection
from paceline.data.manifest import Manifest
from paceline.data.shards import Shard, Shards
from paceline.sharder.dealing import alike
from paceline.tasks.task import load_task

COMPARED = 100
"""Examples of each shard whose features must be the task's."""


def labelled_by(task: str, path: str, folders: Sequence[Path], manifests: Sequence[Manifest]) -> list[Manifest]:
    """The manifests with that task's classes, looked up by the ids in the shards; `path` is the task's data set. DataError
    where its labels are no classes or its examples are not the shards'."""
    other = load_task(task).data(path).train
    classes = other.classes
    if classes is None:
        raise DataError(
            f"The labels of task {task} are {other.labels.dtype} with shape {other.labels.shape}, so they are not "
            "classes. Give --by a task with one whole number for each example."
        )
    return [
        _relabelled(Shards(folder, manifest), other, classes, task)
        for folder, manifest in zip(folders, manifests, strict=True)
    ]


def _relabelled(shards: Shards, other: Labelled, classes: Rows, task: str) -> Manifest:
    entries = []
    for number, entry in enumerate(shards.manifest.shards):
        shard = shards.shard(number)
        _check_same_examples(shard, other, f"{shards.folder / f'shard-{number}'}", task)
        names, counts = np.unique(classes[shard.ids], return_counts=True)
        held = {str(name): int(count) for name, count in zip(names, counts, strict=True)}
        entries.append(entry.model_copy(update={"classes": held}))
    return shards.manifest.model_copy(update={"shards": tuple(entries)})


def _check_same_examples(shard: Shard, other: Labelled, where: str, task: str) -> None:
    advice = "Give --by a task of the same examples, and --data the data set that the shards were made from."
    last = int(shard.ids.max())
    if last >= len(other):
        raise DataError(
            f"{where} has example {last:,}, but task {task} has {len(other):,} training examples, 0 to {len(other) - 1:,}. "
            f"{advice}"
        )
    first = Labelled(shard.features[:COMPARED], shard.labels[:COMPARED])
    if not alike(Selection(other, shard.ids[:COMPARED]), Selection(first, np.arange(len(first)))):
        raise DataError(f"{where} has other examples than task {task}, or the same ones in another order. {advice}")
