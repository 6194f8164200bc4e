"""The sharder: cuts a task's examples into a shard for each worker, once, before training."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from rich.console import Console

from paceline.core.config import Config
from paceline.core.errors import UsageError
from paceline.core.optimizer import build_optimizer
from paceline.data.dataset import Dataset, Selection
from paceline.data.manifest import Manifest, Recipe, Rule
from paceline.data.progress import SILENT, Progress
from paceline.data.shard_writer import already_there, write_shards
from paceline.data.splits import split
from paceline.settings import exits, load, parse_sets, task_of
from paceline.tasks.task import load_task
from sharder.dealing import deal_out, described, digest_of, labels_by
from sharder.engine import Source, build_engine
from sharder.progress import progress_of
from sharder.reshard import reshard, settings_of
from sharder.strategy import build_strategy

USAGE_OF_TYPER = 2
LITERAL = "data.strategy.literal=true"
"""What --literal sets."""
app = typer.Typer(add_completion=False)


@app.command()
def shard(
    out: Annotated[Path, typer.Option(help="Folder for the shards; made if it is not there.")],
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace shards that are there already.")] = False,
    literal: Annotated[bool, typer.Option("--literal", help="Deal exactly as [Sharding] writes it.")] = False,
    old: Annotated[
        Path | None,
        typer.Option("--from", help="Deal the examples of these shards anew, instead of reading data.path."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Prometheus; 0: any free one. Default: none.")
    ] = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, like data.shards=4; may be repeated.")
    ] = None,
) -> None:
    """Cut a data set into train shards, a validation and a test part. Doing it again changes nothing."""
    with exits("sharder"), progress_of(Console(), metrics_port) as progress:
        overrides = parse_sets([*(sets or []), *([LITERAL] if literal else [])])
        if old is not None:
            reshard(old, load(config, overrides, settings_of(old)), out, fresh, progress)
            return
        settings = load_task(*task_of(config, overrides)).settings
        make_shards(load(config, overrides, settings), out, fresh, progress)


def make_shards(config: Config, out: Path, fresh: bool = False, progress: Progress = SILENT) -> Manifest:
    """Writes the shards that the config asks for to `out`, or finds them there from an earlier run. DataError where the
    data is bad or `out` holds other shards (unless `fresh`), DiskError where it can't be written."""
    strategy, engine = build_strategy(config.data.strategy), build_engine(config.data.engine)
    task = load_task(config.task, config.model, config.svm.positive)
    source = Source(
        task.data(config.data.path), partial(_open, config.task, config.model, config.svm.positive, config.data.path)
    )
    train = source.dataset.train
    by = labels_by(strategy, Selection(train, np.arange(len(train))), config)
    parts = split(source.dataset, config.data.validation, config.data.test, config.seed, config.data.fold)
    progress.stage("checking", sum(len(part) for _, part in source.dataset.sets()))
    recipe = Recipe(
        task=task.name,
        strategy=described(config.data.strategy, strategy),
        shards=config.data.shards or config.workers,
        weights=config.data.weights,
        validation=config.data.validation,
        test=config.data.test,
        fold=config.data.fold,
        seed=config.seed,
        examples=engine.digest(source, progress),
        by=digest_of(by, parts.train),
    )
    found = None if fresh else already_there(out, recipe)
    if found:
        progress.say(f"{len(found.shards)} shards of {found.train_examples:,} examples are already there, in {out}.")
        return found
    dealt = deal_out(engine, strategy, source, parts.train, recipe, by, progress)
    write = partial(engine.write, source)
    name = Path(config.data.path).name
    manifest = write_shards(out, name, recipe, dealt, parts.kept, _rule(config), progress, write)
    progress.say(f"{len(manifest.shards)} shards of {manifest.train_examples:,} examples are in {out}.")
    return manifest


def _open(task: str, model: str | None, positive: str | None, path: str) -> Dataset:
    """The task's examples, in whichever process needs them."""
    return load_task(task, model, positive).data(path)


def _rule(config: Config) -> Rule:
    return Rule.made(config.workers, config.batch_size, build_optimizer(config.optimizer).lr)


def main() -> None:
    """`python -m sharder`, with the exit codes of all Paceline processes."""
    try:
        app()
    except SystemExit as stop:
        sys.exit(UsageError.exit_code if stop.code == USAGE_OF_TYPER else stop.code)
