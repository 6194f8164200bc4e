"""The sharder: cuts a task's examples into a shard for each worker, once, before training."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from paceline.core.config import Config
from paceline.core.errors import DataError, UsageError
from paceline.data.dataset import Dataset, Selection
from paceline.data.manifest import Manifest, Recipe
from paceline.data.shard_writer import already_there, write_shards
from paceline.data.splits import split
from paceline.settings import exits, load, parse_sets
from paceline.tasks.task import load_task
from sharder.strategy import ShardingStrategy, build_strategy

USAGE_OF_TYPER = 2
app = typer.Typer(add_completion=False)


@app.command()
def shard(
    out: Annotated[Path, typer.Option(help="Folder for the shards; made if it is not there.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace shards that are there already.")] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, like data.shards=4; may be repeated.")
    ] = None,
) -> None:
    """Cut a data set into train shards, a validation and a test part. Doing it again changes nothing."""
    with exits("sharder"):
        overrides = parse_sets(sets or [])
        named = load(config, overrides)
        task = load_task(named.task, named.model)
        make_shards(load(config, overrides, task.settings), out, fresh, print)


def make_shards(
    config: Config, out: Path, fresh: bool = False, say: Callable[[str], None] = lambda line: None
) -> Manifest:
    """Writes the shards that the config asks for to `out`, or finds them there from an earlier run. DataError where the
    data is bad or `out` holds other shards (unless `fresh`), DiskError where it can't be written."""
    strategy = build_strategy(config.data.strategy)
    task = load_task(config.task, config.model)
    dataset = task.data(config.data.path)
    recipe = _recipe(config, task.name, dataset)
    found = None if fresh else already_there(out, recipe)
    if found:
        say(f"{len(found.shards)} shards of {found.train_examples:,} examples are already there, in {out}.")
        return found
    parts = split(dataset, config.data.validation, config.data.test, config.seed)
    shards = _deal(strategy, parts.train, recipe)
    manifest = write_shards(out, Path(config.data.path).name, recipe, shards, parts.kept, say)
    say(f"{len(shards)} shards of {manifest.train_examples:,} examples are in {out}.")
    return manifest


def _recipe(config: Config, task: str, dataset: Dataset) -> Recipe:
    return Recipe(
        task=task,
        strategy=config.data.strategy,
        shards=config.data.shards or config.workers,
        validation=config.data.validation,
        test=config.data.test,
        seed=config.seed,
        examples=dataset.digest(),
    )


def _deal(strategy: ShardingStrategy, train: Selection, recipe: Recipe) -> list[Selection]:
    """The training examples of each shard."""
    if len(train) < recipe.shards:
        raise DataError(
            f"{len(train)} training examples can't fill {recipe.shards} shards; set fewer workers, or give more data."
        )
    rng = np.random.default_rng(recipe.seed)
    return [train.pick(rows) for rows in strategy.assign(train.labels, train.features, recipe.shards, rng)]


def main() -> None:
    """`python -m sharder`, with the exit codes of all Paceline processes."""
    try:
        app()
    except SystemExit as stop:
        sys.exit(UsageError.exit_code if stop.code == USAGE_OF_TYPER else stop.code)
