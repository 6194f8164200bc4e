"""What `paceline.train(model, train=...)` was given, as one live training, with lines that say what was chosen."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from torch import nn
from torch.utils.data import IterableDataset

from paceline.core.errors import ConfigError
from paceline.core.settings.config import Config
from paceline.worker.live_objects import given_data
from paceline.worker.live_objects.computing import Computing
from paceline.worker.live_objects.given_data import GivenData
from paceline.worker.live_objects.given_optimizer import read_interval, read_optimizer, read_scheduler
from paceline.worker.live_objects.live_training import LiveTraining
from paceline.worker.script.loaders import fitting
from paceline.worker.script.splitting import split


@dataclass(frozen=True, slots=True, eq=False)
class TrainArguments:
    """The arguments as given; None: left out."""

    train: Any
    test: Any = None
    validation: Any = None
    loss: Any = None
    batch_loss: Any = None
    optimizer: Any = None
    scheduler: Any = None
    scheduler_interval: str | None = None
    metrics: Mapping[str, Callable[..., Any]] | None = None
    batch_size: int | None = None
    epochs: int | None = None
    collate_fn: Callable[..., Any] | None = None
    num_workers: int | None = None
    accumulate: int = 1
    precision: str = "float32"
    compile: bool = False
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the training data for `validation` and `test`, where the user said them."""


def read(model: nn.Module, given: TrainArguments, config: Config) -> tuple[LiveTraining, list[str]]:
    """Raises a ConfigError that names the wrong argument, what was seen and what to do."""
    computing = _computing(given)
    sets, lines = _sets(given, config)
    optimizer, line = read_optimizer(given.optimizer, model)
    train = sets.pop("train")
    precisions = get_args(Config.model_fields["precision"].annotation)
    if given.precision not in precisions:
        raise ConfigError(f"precision is {given.precision!r}; expected one of {', '.join(precisions)}.")
    batch_size = _whole("batch_size", given.batch_size, train.batch_size or config.batch_size)
    accumulate = _whole("accumulate", given.accumulate, 1)
    if batch_size % accumulate:
        raise ConfigError(
            f"A mini-batch of {batch_size} can't be cut into {accumulate} equal parts. Choose a batch_size that "
            f"accumulate divides: {-(-batch_size // accumulate) * accumulate}."
        )
    processes = {} if given.num_workers is None else {"num_workers": given.num_workers}
    collate = {} if given.collate_fn is None else {"collate_fn": given.collate_fn}
    loading = fitting({**train.loading, **collate, **processes})
    live = LiveTraining(
        model=model,
        optimizer=optimizer,
        computing=computing,
        train=train.rows,
        epochs=_whole("epochs", given.epochs, config.epochs),
        batch_size=batch_size,
        kept={
            name: replace(each, loading=fitting({**each.loading, **processes}) if each.loading else loading)
            for name, each in sets.items()
        },
        loading=loading,
        scheduler=read_scheduler(given.scheduler, optimizer),
        interval=read_interval(given.scheduler_interval, given.scheduler),
        accumulate=accumulate,
        precision=given.precision,
        compile=given.compile,
    )
    return live, [*lines, line] if line else lines


def _computing(given: TrainArguments) -> Computing:
    if given.loss is not None and given.batch_loss is not None:
        raise ConfigError(
            "Got both loss and batch_loss. Give only one: loss=a function of outputs and targets, or "
            "batch_loss=a function of model and mini-batch."
        )
    _check_callable("loss", given.loss, "outputs and targets")
    _check_callable("batch_loss", given.batch_loss, "model and mini-batch")
    _check_callable("collate_fn", given.collate_fn, "a list of examples")
    metrics = given.metrics if given.metrics is not None else {}
    if not isinstance(metrics, Mapping):
        raise ConfigError(f"metrics is a {type(metrics).__name__}; expected functions by name: metrics={{'f1': f1}}.")
    for name, metric in metrics.items():
        _check_callable(f"metrics[{name!r}]", metric, "outputs and targets")
        if name == "loss":
            raise ConfigError("metrics has a 'loss', which is the name of the loss itself. Choose another name.")
    return Computing(given.loss, given.batch_loss, dict(metrics))


def _check_callable(name: str, found: Any, of: str) -> None:
    if isinstance(found, type) and issubclass(found, nn.Module):
        raise ConfigError(f"{name} is the class {found.__name__}; give an object of that class: {found.__name__}().")
    if found is not None and not callable(found):
        raise ConfigError(f"{name} is {found!r}, which can't be called; expected a function of {of}.")


def _whole(name: str, found: int | None, default: int) -> int:
    value = default if found is None else found
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{name} is {value!r}; expected a whole number of 1 or more.")
    return value


def _sets(given: TrainArguments, config: Config) -> tuple[dict[str, GivenData], list[str]]:
    """The sets by name, those that were not given cut from the training data, and what is said of that."""
    if given.train is None:
        raise ConfigError(
            "paceline.train(model) has no training data. Give it: train=a torch data set, a DataLoader, or (inputs, targets)."
        )
    brought = {"train": given.train, "validation": given.validation, "test": given.test}
    sets = {name: given_data.read(name, found) for name, found in brought.items() if found is not None}
    asked = {name: share for name, share in given.shares.items() if share > 0}
    if "test" not in sets and "validation" not in sets and not given.shares:
        asked = {"validation": config.data.validation, "test": config.data.test}
    wanted = {name: share for name, share in asked.items() if name not in sets}
    train = sets["train"]
    if train.length is None:
        raise ConfigError(
            "train is a stream without a length, so nobody knows when an epoch ends. Give its class a method __len__ that "
            "returns its number of examples."
        )
    if not wanted:
        return sets, []
    if isinstance(train.rows, IterableDataset):
        if given.shares:
            raise ConfigError(
                "train is a stream, so Paceline can't cut parts from it. Give data sets for test= and "
                "validation=, or no shares."
            )
        return sets, [
            "no test data was given, and none can be cut from an iterable set: training examples are not scored"
        ]
    names: list[str] = [name for name in ("train", "validation", "test") if name == "train" or name in wanted]
    parts = split(train.rows, wanted.get("test", 0.0), wanted.get("validation", 0.0), config.seed)
    cut: dict[str, GivenData] = {
        name: GivenData(rows, train.batch_size, train.loading if name == "train" else {})
        for name, rows in zip(names, parts, strict=True)
    }
    told = " and ".join(f"{cut[name].length:,} for {name}" for name in names[1:])
    return {**sets, **cut}, [
        f"of {train.length:,} examples {told}: nobody trains on these (to choose them yourself: test=...)"
    ]
