"""Deals the examples of existing shards to another number of shards, or by another strategy; does not read the data set again.
The result is the same as from the data set."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.data.dataset import Dataset, Labelled, Selection, release_features
from paceline.data.manifest import Manifest, Recipe, read_manifest
from paceline.data.out_of_core import Growing, GrowingRows
from paceline.data.progress import SILENT, Progress
from paceline.data.sampler import locate, starts_of
from paceline.data.shard_store import ShardStore
from paceline.data.shards import Shards, open_shards, take
from paceline.data.splits import Split
from paceline.sharder.dealing import (
    Material,
    described,
    digest_of,
    file_of,
    labels_by,
    made_before,
    other_task,
    provide,
)
from paceline.sharder.engine import Source, build_engine
from paceline.sharder.engines.local import Local
from paceline.sharder.strategy import build_strategy

PARTS = ("validation", "test", "fold")
"""Settings of data that decide what trains."""
ROWS = 4096
"""Examples that are put together at a time."""


def settings_of(old: Path) -> dict[str, Any]:
    """The settings that the shards in the folder were made with, as far as dealing them again depends on them."""
    recipe = read_manifest(old).recipe
    data = {"strategy": recipe.strategy.model_dump(), "weights": recipe.weights} | {
        key: getattr(recipe, key) for key in PARTS
    }
    return {"task": recipe.task, "workers": recipe.shards, "seed": recipe.seed, "data": data}


def reshard(
    old: Path,
    config: Config,
    out: Path,
    fresh: bool = False,
    progress: Progress = SILENT,
    store: ShardStore | None = None,
) -> Manifest:
    """Writes the shards that the config asks for to `out`, which may be `old` itself with `fresh`. The validation and test
    examples stay the same. Raises DataError if the old shards are damaged; other errors as for `make_shards`."""
    strategy, engine = build_strategy(config.data.strategy), build_engine(config.data.engine)
    if not isinstance(engine, Local):
        raise ConfigError(
            f"data.engine is {config.data.engine.name}; only the local engine can deal existing shards again."
        )
    shards = open_shards(old)
    _check_same(config, shards.manifest.recipe)
    recipe = shards.manifest.recipe.model_copy(
        update={
            "strategy": described(config.data.strategy, strategy),
            "strategy_file": file_of(config.data.strategy),
            "shards": config.data.shards or config.workers,
            "weights": config.data.weights,
            "by": None,
        }
    )

    @cache
    def read() -> Material:
        parts = _parts(shards, progress)
        dataset = Dataset(
            parts.train.source,
            classes=shards.manifest.classes,
            columns=shards.manifest.columns,
            as_read=shards.manifest.as_read,
        )
        return Material(Source(dataset, lambda: dataset), parts, labels_by(strategy, parts.train, config))

    if other_task(strategy) is not None:
        if not fresh:
            made_before(out, store, recipe, but=("by",))
        recipe = recipe.model_copy(update={"by": digest_of(read().by, read().parts.train)})
    rule = shards.manifest.rule and shards.manifest.rule.for_workers(config.workers)
    return provide(out, fresh, recipe, engine, strategy, read, shards.manifest.source, rule, progress, store)


def _parts(shards: Shards, progress: Progress) -> Split:
    """All examples that the shards hold and that are kept from training."""
    train, kept = _train(shards, progress), {}
    for name in shards.manifest.parts:
        shards.verify(name)
        part = shards.part(name)
        kept[name] = Selection(
            Labelled(part.features, part.labels, part.weights), np.arange(len(part)), own_ids=part.ids
        )
    return Split(train, kept)


def _check_same(config: Config, recipe: Recipe) -> None:
    """ConfigError for settings that only the data set itself can give."""
    asked = {"seed": config.seed} | {f"data.{key}": getattr(config.data, key) for key in PARTS}
    for key, value in asked.items():
        kept = getattr(recipe, key.removeprefix("data."))
        if value != kept:
            raise ConfigError(
                f"{key} is {value}, but the shards were made with {kept}. Dealing shards again can't change which "
                "examples train. Leave it out, or make new shards from the data set."
            )


def _train(shards: Shards, progress: Progress) -> Selection:
    """All training examples in the order of their ids, each once."""
    progress.stage("reading", shards.manifest.train_examples)
    for number in range(len(shards)):
        shards.verify(number)
    parts = [shards.shard(number) for number in range(len(shards))]
    ids, first = np.unique(np.concatenate([part.ids for part in parts]), return_index=True)
    starts = starts_of([len(part) for part in parts])
    features = GrowingRows(parts[0].features)
    labels = Growing(parts[0].labels.dtype, parts[0].labels.shape[1:])
    weights = None if shards.manifest.train_weights is None else shards.weights(first)
    for start in range(0, len(ids), ROWS):
        found, own = take(parts, *locate(starts, first[start : start + ROWS]))
        features.append(found)
        labels.append(own)
        for part in parts:
            release_features(part.features)
        progress.advance(len(own))
    return Selection(Labelled(features.array(), labels.array(), weights), np.arange(len(ids)), own_ids=ids)
