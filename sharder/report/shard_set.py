"""What a report says about one folder of shards: its numbers, from the manifest, by the shards' classes or another task's."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt

from paceline.core.errors import DataError, UsageError
from paceline.core.settings.config import Options
from paceline.data.dataset import Labelled, Rows, Selection
from paceline.data.files import BUNDLED
from paceline.data.manifest import Manifest, read_manifest
from paceline.data.shards import Shard, Shards
from paceline.sharder.dealing import alike
from paceline.tasks.task import load_task

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]
COMPARED = 100
"""Examples of each shard whose features must be the task's."""


@dataclass(frozen=True)
class Clusters:
    """The neighbourhoods that a strategy found ([Sharding] Table III): how many examples are in each, whether each of
    its examples went to every worker (sparse)."""

    sizes: Counts
    sparse: npt.NDArray[np.bool_]

    @property
    def sparse_sizes(self) -> Counts:
        """Sizes of those that every worker got whole."""
        return self.sizes[self.sparse]


@dataclass(frozen=True)
class ShardSet:
    """One folder of shards under the name that the report calls it by. `by`: the task whose classes the manifest counts,
    where these are not the shards' own."""

    name: str
    folder: Path
    manifest: Manifest
    by: str | None = None

    @property
    def workers(self) -> int:
        """Number of shards; each is one worker's."""
        return len(self.manifest.shards)

    @property
    def of_task(self) -> str:
        """What follows the word "class" where classes are another task's."""
        return "" if self.by is None else f" of {Path(self.by).stem}"

    @cached_property
    def classes(self) -> list[str]:
        """Every class that some shard has, numbers in their order."""
        return _names(entry.classes for entry in self.manifest.shards)

    @cached_property
    def counts(self) -> Counts:
        """Examples of each class in each shard (classes x workers)."""
        return _table([entry.classes for entry in self.manifest.shards], self.classes)

    @cached_property
    def deviation(self) -> Floats:
        """How much more often a class is in a shard than in all shards together (classes x workers, ratio; 0 is even)."""
        return shares(self.counts) / shares(self.counts.sum(axis=1, keepdims=True)) - 1

    @cached_property
    def divergence(self) -> Floats:
        """Each worker's distance from the classes of all shards together (bits)."""
        return divergence(self.counts, self.counts.sum(axis=1, keepdims=True))

    @cached_property
    def chance(self) -> float:
        """What dealing at random is expected to give as `divergence` (bits): (classes - 1) / (8 ln 2 x examples in a
        shard), less for few workers, whose shards are much of the whole."""
        size = float(np.mean(self.manifest.sizes))
        return (len(self.classes) - 1) / (8 * math.log(2) * size) * (1 - 1 / self.workers)

    @property
    def furthest(self) -> tuple[str, int, float]:
        """The class, worker and ratio of the largest deviation, up or down."""
        row, column = np.unravel_index(np.abs(self.deviation).argmax(), self.deviation.shape)
        return self.classes[row], int(column), float(self.deviation[row, column])

    @property
    def seconds(self) -> float | None:
        """How long dealing the examples out took (s)."""
        return self.manifest.seconds

    @property
    def sparse_below(self) -> int:
        """Size below which a cluster goes to every worker; only meant where there are clusters."""
        options = self.manifest.recipe.strategy.options
        chosen = options.get("sparse_below")
        return self.workers + bool(options.get("literal")) if chosen is None else int(chosen)

    @cached_property
    def clusters(self) -> Clusters | None:
        """None where the strategy looks for none."""
        return find_clusters(self.manifest)


Sets = Sequence[ShardSet]
MOST_SETS = 12
"""More have no room in one picture."""


def read_sets(folders: list[Path], by: str | None = None, path: str = BUNDLED) -> list[ShardSet]:
    """The sets to compare, each under its strategy, with the folder's name where two would be called the same. `by`: a task
    whose classes are shown instead of the shards' own, `path`: its data set. DataError where a folder holds no shards, none
    with classes, or others' training examples."""
    if len({folder.resolve() for folder in folders}) < len(folders):
        raise UsageError("A folder is in the list twice; give each set of shards once.")
    if len(folders) > MOST_SETS:
        raise UsageError(f"{len(folders)} folders are too many for one picture; give {MOST_SETS} or fewer.")
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        _check_same_data(folders[0], manifests[0], folder, manifest)
    names = _labels(folders, manifests)
    if by is not None:
        manifests = labelled_by(by, path, folders, manifests)
    for folder, manifest in zip(folders, manifests, strict=True):
        _check_classes(folder, manifest)
    return [ShardSet(*found, by) for found in zip(names, folders, manifests, strict=True)]


def shares(counts: Counts) -> Floats:
    """Each column as shares of its sum; a column of zeros stays one."""
    whole: Floats = np.maximum(counts.sum(axis=0, keepdims=True), 1).astype(np.float64)
    return counts / whole


def divergence(counts: Counts, whole: Counts) -> Floats:
    """Jensen-Shannon divergence of each column of (classes x workers) from `whole` (classes x 1): 0 to 1 bit."""
    from scipy.spatial.distance import jensenshannon

    with np.errstate(invalid="ignore"):  # rounding can put a sum of zeros just below zero, and it takes the root
        distance = jensenshannon(counts, whole, base=2.0, axis=0)
    return np.nan_to_num(np.asarray(distance, dtype=np.float64)) ** 2


def digits(value: float) -> str:
    """Two digits that matter, never as a power of ten."""
    return np.format_float_positional(value, precision=2, unique=False, fractional=False, trim="-")


def find_clusters(manifest: Manifest) -> Clusters | None:
    """Sizes and sparseness from how many members of each cluster each shard has; of a sparse one each has all."""
    held = [entry.clusters for entry in manifest.shards]
    names = _names(held)
    if not names:
        return None
    table = _table(held, names)
    sparse = np.isin(names, [str(number) for number in manifest.sparse])
    return Clusters(np.where(sparse, table[:, 0], table.sum(axis=1)), sparse)


def _check_classes(folder: Path, manifest: Manifest) -> None:
    if not any(entry.classes for entry in manifest.shards):
        raise DataError(
            f"The shards in {folder} have labels that are not classes (task {manifest.recipe.task}); the report compares "
            "how classes are spread. Give --by a task that has classes for the same examples."
        )


def _check_same_data(first: Path, one: Manifest, second: Path, other: Manifest) -> None:
    for key, what in (
        ("examples", "other data sets"),
        ("validation", "other shares for validation"),
        ("test", "other shares for testing"),
    ):
        then, now = getattr(one.recipe, key), getattr(other.recipe, key)
        if then != now:
            raise DataError(
                f"{first} and {second} were made from {what} ({then!s:.12} and {now!s:.12}), so their counts can't be "
                "compared. Give folders of the same data set, sharded in different ways."
            )


def _labels(folders: list[Path], manifests: list[Manifest]) -> list[str]:
    """The shortest names that tell the sets apart: the strategy, the folder's name, its path."""
    strategies = [_strategy(manifest.recipe.strategy) for manifest in manifests]
    named = [f"{strategy} ({folder.resolve().name})" for strategy, folder in zip(strategies, folders, strict=True)]
    whole = [f"{strategy} ({folder.resolve()})" for strategy, folder in zip(strategies, folders, strict=True)]
    return [
        next((choice for choice, all_ in ((short, strategies), (longer, named)) if all_.count(choice) == 1), longest)
        for short, longer, longest in zip(strategies, named, whole, strict=True)
    ]


def _strategy(chosen: Options) -> str:
    """'distribution_aware, clusters 30'."""
    return ", ".join([chosen.name, *(f"{key} {value}" for key, value in chosen.options.items())])


def _names(histograms: Iterable[dict[str, int]]) -> list[str]:
    """Every key, numbers by their value and before words."""
    return sorted(
        {name for histogram in histograms for name in histogram},
        key=lambda name: (not name.isdecimal(), int(name) if name.isdecimal() else 0, name),
    )


def _table(histograms: list[dict[str, int]], names: list[str]) -> Counts:
    return np.array([[histogram.get(name, 0) for histogram in histograms] for name in names], dtype=np.int64)


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
