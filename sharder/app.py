"""The sharder: cuts a task's examples into a shard for each worker, once, before training."""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from paceline.core.config import Config, Options
from paceline.core.errors import DataError, UsageError
from paceline.core.optimizer import build_optimizer
from paceline.data.dataset import Dataset, Selection
from paceline.data.manifest import Manifest, Recipe, Rule
from paceline.data.shard_writer import already_there, write_shards
from paceline.data.splits import split
from paceline.settings import exits, load, parse_sets
from paceline.tasks.task import load_task
from sharder.strategy import ByClasses, ShardingStrategy, build_strategy, deal

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
    options = Options(name=config.data.strategy.name, **strategy.model_dump(mode="json", exclude_defaults=True))
    recipe = _recipe(config, task.name, options, dataset)
    found = None if fresh else already_there(out, recipe)
    if found:
        say(f"{len(found.shards)} shards of {found.train_examples:,} examples are already there, in {out}.")
        return found
    parts = split(dataset, config.data.validation, config.data.test, config.seed)
    classes = _classes_of(strategy, parts.train, config)
    start = time.perf_counter()
    dealt = deal(strategy, classes, recipe.weights or (1.0,) * recipe.shards, recipe.seed)
    seconds = time.perf_counter() - start
    shards = [parts.train.pick(rows) for rows in dealt.shards]
    clusters = [] if dealt.clusters is None else [dealt.clusters[rows] for rows in dealt.shards]
    source = Path(config.data.path).name
    manifest = write_shards(out, source, recipe, shards, parts.kept, say, clusters, _rule(config), seconds)
    say(f"{len(shards)} shards of {manifest.train_examples:,} examples are in {out}.")
    return manifest


def _recipe(config: Config, task: str, strategy: Options, dataset: Dataset) -> Recipe:
    return Recipe(
        task=task,
        strategy=strategy,
        shards=config.data.shards or config.workers,
        weights=config.data.weights,
        validation=config.data.validation,
        test=config.data.test,
        seed=config.seed,
        examples=dataset.digest(),
    )


def _classes_of(strategy: ShardingStrategy, train: Selection, config: Config) -> Selection:
    """The training examples as the strategy sees them: with another task's labels where it names one."""
    if not isinstance(strategy, ByClasses) or strategy.by is None:
        return train
    other = load_task(strategy.by).data(config.data.path).train
    if not np.array_equal(other.features, train.source.features):
        raise DataError(
            f"Task {strategy.by} has other examples than {config.task}, or the same ones in another order, so its labels "
            "can't be dealt by; set data.strategy.by to a task of the same examples, or leave it out."
        )
    return Selection(other, train.rows, train.first_id)


def _rule(config: Config) -> Rule:
    batch_size, lr = config.batch_size, build_optimizer(config.optimizer).lr
    each = max(1, batch_size // config.workers)
    return Rule(workers=config.workers, batch_size=batch_size, worker_batch=each, lr=lr, worker_lr=lr / config.workers)


def main() -> None:
    """`python -m sharder`, with the exit codes of all Paceline processes."""
    try:
        app()
    except SystemExit as stop:
        sys.exit(UsageError.exit_code if stop.code == USAGE_OF_TYPER else stop.code)
