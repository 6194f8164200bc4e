"""The sharder: cuts a task's examples into a shard for each worker, once, before training, and writes them to a folder or an
object store."""

import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer
from rich.console import Console

from paceline.core.errors import ConfigError, NoData, Stopped, UsageError
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.settings.config import Config, TableConfig
from paceline.data.dataset import Dataset, Selection
from paceline.data.manifest import Manifest, Recipe, Rule
from paceline.data.progress import SILENT, Progress
from paceline.data.shard_store import ShardStore
from paceline.data.splits import split
from paceline.processes.exits import exits
from paceline.rpc.listening import LOOPBACK, is_loopback
from paceline.rpc.retries import Patient
from paceline.settings.load_settings import load, parse_sets
from paceline.sharder.dealing import Material, described, digest_of, file_of, labels_by, made_before, provide
from paceline.sharder.engine import Source, build_engine
from paceline.sharder.progress_bars import progress_of
from paceline.sharder.reshard import reshard, settings_of
from paceline.sharder.shard_options import Fresh, Literal, Out
from paceline.sharder.strategy import build_strategy
from paceline.tasks.task import load_config, load_task

USAGE_OF_TYPER = 2
LITERAL = "data.strategy.literal=true"
"""What --literal sets."""
app = typer.Typer(add_completion=False)


@app.command()
def shard(
    out: Out = None,
    config: Annotated[Path | None, typer.Option(help="YAML file with the run's settings.")] = None,
    fresh: Fresh = False,
    literal: Literal = False,
    old: Annotated[
        Path | None,
        typer.Option("--from", help="Deal the examples of these shards again, instead of reading data.path."),
    ] = None,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for Prometheus; 0: any free one. Default: none.")
    ] = None,
    bind: Annotated[
        str, typer.Option(help="Address for that port; :: for all of this machine, which needs --plain-text.")
    ] = LOOPBACK,
    plain_text: Annotated[
        bool, typer.Option("--plain-text", help="Show the metrics beyond this machine, without TLS.")
    ] = False,
    sets: Annotated[
        list[str] | None, typer.Option("--set", help="One setting, like data.shards=4; may be repeated.")
    ] = None,
) -> None:
    """Cut a data set into train shards, a validation and a test part. Doing it again changes nothing."""
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(Stopped.exit_code)
    )  # as process 1 of a container it would go unheard
    with exits("sharder"):
        if bind != LOOPBACK and metrics_port is None:
            raise UsageError(f"--bind {bind} is for the metrics: add --metrics-port.")
        if not (plain_text or is_loopback(bind)):
            raise UsageError(
                f"--bind {bind}: everybody on that network could read the metrics. Add --plain-text if they may."
            )
    with exits("sharder"), progress_of(Console(), metrics_port, bind) as progress:
        overrides = parse_sets([*(sets or []), *([LITERAL] if literal else [])])
        found = load_config(config, overrides) if old is None else load(config, overrides, settings_of(old))
        write_shards(out, found, old, fresh, progress)


def write_shards(out: str | None, config: Config, old: Path | None, fresh: bool, progress: Progress) -> None:
    """Makes shards of the data set, or of the shards in `old`, where `out` and data.shards_at say. Raises what `placed`,
    `make_shards` and `reshard` raise."""
    with placed(out, config, progress) as place:
        if old is None:
            make_shards(config, place.folder, fresh, progress, place.store)
        else:
            reshard(old, config, place.folder, fresh, progress, place.store)


def make_shards(
    config: Config, out: Path, fresh: bool = False, progress: Progress = SILENT, store: ShardStore | None = None
) -> Manifest:
    """Writes the shards that the config asks for to `out` and sends them to `store`, or finds them there from an earlier run.
    DataError where the data is bad or the place has other shards (unless `fresh`), DiskError where they can't be written;
    errors of a store as for `ShardStore`."""
    strategy, engine = build_strategy(config.data.strategy), build_engine(config.data.engine)
    table = config.data.table
    task = load_task(config.task, config.model, config.svm.positive, table)
    recipe = Recipe(
        task=task.name,
        strategy=described(config.data.strategy, strategy),
        strategy_file=file_of(config.data.strategy),
        shards=config.data.shards or config.workers,
        weights=config.data.weights,
        validation=config.data.validation,
        test=config.data.test,
        fold=config.data.fold,
        seed=config.seed,
        examples="",
    )
    there = None if fresh else made_before(out, store, recipe, but=("examples", "by"))
    try:
        data = task.data(config.data.path)
    except NoData:
        if store is None or there is None:
            raise
        progress.say(f"The shards in {store.url} are taken as they are: no data.path was given to compare them with.")
        return there
    source = Source(data, partial(_open, config.task, config.model, config.svm.positive, table, config.data.path))
    train = source.dataset.train
    if config.updates == "dense":
        _check_alike(source.dataset)
    for line in source.dataset.as_read:
        progress.say(line)
    by = labels_by(strategy, Selection(train, np.arange(len(train))), config)
    parts = cache(
        partial(split, source.dataset, config.data.validation, config.data.test, config.seed, config.data.fold)
    )
    if there is None:
        parts()  # reports what is wrong with them before all examples are read
    progress.stage("checking", sum(len(part) for _, part in source.dataset.sets()))
    digests = {
        "examples": engine.digest(source, progress),
        "by": None if by is None else digest_of(by, parts().train),
    }
    return provide(
        out,
        fresh,
        recipe.model_copy(update=digests),
        engine,
        strategy,
        lambda: Material(source, parts(), by),
        Path(config.data.path).name,
        _rule(config),
        progress,
        store,
    )


def _check_alike(dataset: Dataset) -> None:
    """ConfigError where examples have weights, which the loss of a model of torch would pass over."""
    for name, part in dataset.sets():
        if part.weights is not None:
            raise ConfigError(
                f"The {name} examples have weights (Labelled.weights, or a file whose name ends in .weight), but "
                "only linear models (updates: sparse) use weights. Leave the weights out, or train a linear "
                "model."
            )


def _open(task: str, model: str | None, positive: str | None, table: TableConfig, path: str) -> Dataset:
    """The task's examples, in whichever process needs them."""
    return load_task(task, model, positive, table).data(path)


def _rule(config: Config) -> Rule:
    return Rule.made(config.workers, config.batch_size, build_optimizer(config.optimizer).lr)


def main() -> None:
    """`python -m paceline.sharder`, with the exit codes of all Paceline processes."""
    try:
        app()
    except SystemExit as stop:
        sys.exit(UsageError.exit_code if stop.code == USAGE_OF_TYPER else stop.code)


class Output(NamedTuple):
    """A folder here, and the store that gets what is in it; None: they stay here."""

    folder: Path
    store: ShardStore | None


@contextmanager
def placed(out: str | None, config: Config, progress: Progress) -> Iterator[Output]:
    """What `out` and data.shards_at say; a folder that nobody named lasts as long as the block. UsageError where neither is
    given, ConfigError where they are two URLs; errors of a store as for `ShardStore`."""
    url = config.data.shards_at
    if out is not None and "://" in out:
        if url not in (None, out):
            raise ConfigError(f"--out is {out}, but data.shards_at is {url}. Leave one of them out.")
        out, url = None, out
    if url is None:
        if out is None:
            raise UsageError("Nothing says where the shards go. Give --out FOLDER, or set data.shards_at to a URL.")
        yield Output(Path(out), None)
        return
    store = ShardStore(url, Patient(threading.Event(), lambda event, **facts: progress.say(f"{event}: {facts['why']}")))
    if out is not None:
        yield Output(Path(out), store)
        return
    with tempfile.TemporaryDirectory(prefix="paceline-shards-") as folder:
        yield Output(Path(folder) / "shards", store)
