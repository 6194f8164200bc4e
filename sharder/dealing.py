"""From a strategy to shards: which labels it looks at, and how long it takes."""

import hashlib
import time
from collections.abc import Callable, Collection, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from paceline.base.own_files import is_own
from paceline.core.errors import ConfigError, DataError
from paceline.core.settings.config import Config, Options
from paceline.data.dataset import Array, Labelled, Rows, Selection, is_sparse
from paceline.data.manifest import Manifest, Recipe, Rule
from paceline.data.progress import Progress
from paceline.data.shard_store import ShardStore
from paceline.data.shard_writer import Dealt, already_there, checked_recipe, write_shards
from paceline.data.splits import Split
from paceline.settings.own_extensions import OWN
from paceline.sharder.arriving import stored
from paceline.sharder.clustering import Clustering, Neighbourhoods
from paceline.sharder.engine import Engine, Source
from paceline.sharder.strategy import ByClasses, ShardingStrategy, build_strategy, deal
from paceline.tasks.task import load_task


class Material(NamedTuple):
    """What shards are made of. `by`: labels to deal by instead of the examples' own, one for each row of their set."""

    source: Source
    parts: Split
    by: Array | None


def made_before(out: Path, store: ShardStore | None, recipe: Recipe, but: Collection[str] = ()) -> Manifest | None:
    """The manifest of this recipe's shards in `store`, or in `out` if there is no store; None where nothing is. Errors as for
    `already_there`."""
    if store is None:
        return already_there(out, recipe, but)
    manifest = store.whole()
    return None if manifest is None else checked_recipe(manifest, store.url, recipe, but)


def provide(
    out: Path,
    fresh: bool,
    recipe: Recipe,
    engine: Engine,
    strategy: ShardingStrategy,
    read: Callable[[], Material],
    name: str,
    rule: Rule | None,
    progress: Progress,
    store: ShardStore | None = None,
) -> Manifest:
    """The shards of this recipe: those that exist already, or (also with `fresh`) newly dealt ones, written to `out` and
    sent to `store`. `name`: of what the examples came from. Errors as for `already_there`, `deal`, `write_shards` and
    `ShardStore`."""
    place = store.url if store else out
    manifest = None if fresh else made_before(out, store, recipe)
    if manifest is not None:
        where = "are already there, in"
    else:
        where = "are in"
        if store is not None and not fresh:
            manifest = already_there(out, recipe)  # the store did not get them
        if manifest is None:
            source, parts, by = read()
            dealt = deal_out(engine, strategy, source, parts.train, recipe, by, progress)
            data = source.dataset
            manifest = write_shards(
                out,
                name,
                recipe,
                dealt,
                parts.kept,
                rule=rule,
                progress=progress,
                write=partial(engine.write, source),
                classes=data.classes,
                columns=data.columns,
                as_read=data.as_read,
            )
        if store is not None:
            store.send(out, progress)
    progress.say(f"{len(manifest.shards)} shards of {manifest.train_examples:,} examples {where} {place}.")
    return manifest


def described(options: Options, strategy: ShardingStrategy) -> Options:
    """The strategy as a recipe holds it: its name, and the options that are not the defaults."""
    return Options(name=options.name, **strategy.model_dump(mode="json", exclude_defaults=True))


def file_of(options: Options) -> str | None:
    """SHA-256 of the strategy's file, where it is the user's own."""
    return OWN.digest(options.name) if is_own(options.name) else None


def other_task(strategy: ShardingStrategy) -> str | None:
    """The task whose labels the strategy deals by, where these are not the examples' own."""
    return strategy.by if isinstance(strategy, ByClasses) else None


def labels_by(strategy: ShardingStrategy, source: Selection, config: Config) -> Array | None:
    """The labels that the strategy deals by, where these are another task's; `source` are all training examples. DataError
    where that task has others."""
    task = other_task(strategy)
    if task is None:
        return None
    other = load_task(task).data(config.data.path).train
    ids = source.ids
    if ids.max() >= len(other) or not alike(Selection(other, ids), source):
        raise DataError(
            f"Task {task} has other examples than {config.task}, or the same ones in another order, so shards "
            "can't be dealt by its labels. Set data.strategy.by to a task of the same examples, or leave it out."
        )
    labels: Array = other.labels[ids]
    return labels


def digest_of(labels: Array | None, train: Selection) -> str | None:
    """SHA-256 of the labels that these examples are dealt by; `labels` are those of all rows of their set."""
    return None if labels is None else hashlib.sha256(np.ascontiguousarray(labels[train.rows]).data).hexdigest()


def deal_out(
    engine: Engine,
    strategy: ShardingStrategy,
    source: Source,
    train: Selection,
    recipe: Recipe,
    by: Array | None,
    progress: Progress,
) -> Dealt:
    """The shards of the training examples; `by`: labels to deal by instead of the examples' labels. Errors as for `deal`."""

    kept: list[Neighbourhoods] = []

    def cluster(train: Selection, how: Clustering, rng: np.random.Generator) -> Rows:
        progress.stage("clustering", len(train))
        return engine.cluster(source, train, how._replace(keep=kept.append), rng, progress)

    seen = train if by is None else Selection(Labelled(train.source.features, by), train.rows)
    start = time.perf_counter()
    found = deal(strategy, seen, recipe.weights or (1.0,) * recipe.shards, recipe.seed, cluster)
    return Dealt(
        [train.pick(rows) for rows in found.shards],
        [] if found.clusters is None else [found.clusters[rows] for rows in found.shards],
        found.sparse,
        time.perf_counter() - start,
        stored(kept[-1]) if kept else {},
    )


def rows_of_shards(config: Config, train: Selection) -> Sequence[Rows]:
    """The rows of each shard that the settings ask for, of a script's examples, which are not written anywhere. Errors as for
    `deal`; ConfigError if the strategy depends on another task."""
    strategy = build_strategy(config.data.strategy)
    if other_task(strategy) is not None:
        raise ConfigError(
            f"data.strategy.by is {other_task(strategy)}, but a script has its own examples. Leave out `by`, and "
            "give the labels in the script: paceline.loader(..., labels=...)."
        )
    weights = config.data.weights or (1.0,) * (config.data.shards or config.workers)
    return deal(strategy, train, weights, config.seed).shards


def alike(one: Selection, other: Selection) -> bool:
    """Whether both hold the same features."""
    if one.source.features.shape[1:] != other.source.features.shape[1:]:
        return False
    for start, stop in other.source.pieces():
        rows = np.arange(start, stop)
        if not _equal(one.pick(rows).features, other.pick(rows).features):
            return False
        one.source.release()
        other.source.release()
    return True


def _equal(one: Any, other: Any) -> bool:
    if is_sparse(one) and is_sparse(other):
        return (one != other).nnz == 0  # type: ignore[no-any-return]
    return not is_sparse(one) and not is_sparse(other) and np.array_equal(one, other)
