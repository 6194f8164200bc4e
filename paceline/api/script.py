"""What your own training script says to Paceline. `paceline launch train.py` runs it as several workers; without the
launcher every function here leaves plain torch as it is. Torch is imported when an optimizer is wrapped, not before."""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

from paceline.base.extras import needing
from paceline.base.notebook import ALONE, in_notebook
from paceline.core.errors import ConfigError
from paceline.rpc.notice import Notice, received
from paceline.worker.script.alone import Alone, clip_steps
from paceline.worker.script.asked_scores import AskedScores
from paceline.worker.script.current import current

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader, Sampler, Subset

__all__ = ["epochs", "evaluate", "loader", "notice", "rank", "sampler", "split", "steps", "workers", "wrap"]


def wrap(
    optimizer: "Optimizer",
    model: "nn.Module",
    *,
    accumulate: int = 1,
    buffers: Literal["mean", "first", "own"] = "mean",
    clip_norm: float | None = None,
    schedulers: Sequence[Any] = (),
) -> "Optimizer":
    """The optimizer with the servers behind it: its `step()` pushes the gradients and pulls the weights, as the run's policy
    says. It is a torch.optim.Optimizer with the same parameter groups, for schedulers, GradScaler and closures too.

    Call it before the first epoch, once for each optimizer. `model`: what is trained; move it to its device first.
    `accumulate`: mini-batches whose gradients are added up before each `step()`. `buffers`: whose running statistics (as
    BatchNorm's) count. "mean": the mean over all workers; "first": worker 0's; "own": each worker keeps its own. `clip_norm`:
    largest L2 norm of the gradient of a step, in place of torch.nn.utils.clip_grad_norm_; in lock-step that of the mean of
    all workers, otherwise each worker's. `schedulers`: those that are not torch's, with state_dict() and load_state_dict(),
    as timm's are; a worker that is started again continues them. torch's own need not be named. ConfigError: the servers
    can't do the steps of this optimizer."""
    run = current()
    if clip_norm is not None and not (isinstance(clip_norm, int | float) and clip_norm > 0):
        raise ConfigError(f"paceline.wrap: clip_norm is {clip_norm!r}; expected a number above 0.")
    _check_schedulers(schedulers, optimizer)
    if isinstance(run, Alone):
        if in_notebook():
            print(ALONE, flush=True)
        run.model = model
        if clip_norm is not None:
            clip_steps(optimizer, clip_norm)
        return optimizer
    with needing("paceline.wrap"):
        from paceline.worker.script.wrapped_optimizer import wrap as wrapped

    return wrapped(run, optimizer, model, accumulate, buffers, clip_norm, schedulers)


def _check_schedulers(schedulers: Any, optimizer: "Optimizer") -> None:
    """ConfigError where they can't continue in a worker that is started again."""
    expected = "expected a list of schedulers over this optimizer, with state_dict() and load_state_dict()."
    if not isinstance(schedulers, list | tuple):
        raise ConfigError(f"paceline.wrap: schedulers is a {type(schedulers).__name__}; {expected}")
    for one in schedulers:
        has_state = all(callable(getattr(one, name, None)) for name in ("state_dict", "load_state_dict"))
        if not has_state or getattr(one, "optimizer", optimizer) is not optimizer:
            what = "of another optimizer" if has_state else "without these"
            raise ConfigError(f"paceline.wrap: schedulers has a {type(one).__name__} {what}; {expected}")


def loader(
    dataset: Any,
    batch_size: int | None = None,
    *,
    shuffle: bool | None = None,
    drop_last: bool | None = None,
    labels: Any = None,
    length: int | None = None,
    deals_itself: bool = False,
    **options: Any,
) -> "DataLoader[Any]":
    """A torch DataLoader of this worker's part of the data set: rows by number, or a stream (IterableDataset).

    In each epoch all workers together take every row once. The order is new each time, unless `shuffle` is False. A DataLoader
    as `dataset` is dealt again with its own settings. With a `sampler` all workers together take what it draws. ConfigError:
    the data set can't be dealt, or an argument does not fit.

    `batch_size`: examples of a mini-batch of all workers together; each takes batch_size / workers of it. `drop_last`: all
    mini-batches have the same size. `labels`: one for each row. Give them where data.strategy deals by labels, and the data set
    does not keep them as torchvision, TensorDataset or HuggingFace do. `length`: examples of an epoch of a stream, of all
    workers together. `deals_itself`: the stream gives each reader of the run its part, by
    torch.utils.data.get_worker_info(). `options`: DataLoader's own (num_workers, collate_fn, pin_memory, ...)."""
    with needing("paceline.loader"):
        from paceline.worker.script import loaders

    return loaders.loader(
        _launched(),
        _rows_of_shards,
        dataset,
        batch_size,
        shuffle=shuffle,
        drop_last=drop_last,
        labels=labels,
        length=length,
        deals_itself=deals_itself,
        **options,
    )


def sampler(
    dataset: Any, batch_size: int | None = None, *, shuffle: bool = True, drop_last: bool = False, labels: Any = None
) -> "Sampler[Any]":
    """This worker's rows, for a DataLoader of your own: DataLoader(dataset, batch_size=64, sampler=paceline.sampler(dataset)),
    where 64 is each worker's, as with torch's DistributedSampler: n workers train as one process with a mini-batch of 64 * n.

    With `batch_size` it is a batch_sampler, and batch_size is that of all workers together:
    DataLoader(dataset, batch_sampler=paceline.sampler(dataset, batch_size=64)). The rest: see `loader`."""
    with needing("paceline.sampler"):
        from paceline.worker.script import samplers

    return samplers.sampler(
        _launched(), _rows_of_shards, dataset, batch_size, shuffle=shuffle, drop_last=drop_last, labels=labels
    )


def split(dataset: Any, test: float = 0.15, validation: float = 0.0, *, labels: Any = None) -> "list[Subset[Any]]":
    """train, test = paceline.split(dataset, test=0.15): torch Subsets, the same in all processes and without the launcher, by
    the run's seed. With a share for `validation` there are three: train, validation, test.

    Classes keep their shares where the data set has its labels at hand, or they are given as `labels`."""
    with needing("paceline.split"):
        from paceline.worker.script import splitting

    return splitting.split(dataset, test, validation, current().seed, labels)


def _rows_of_shards(config: Any, train: Any) -> Any:
    """Who gets what. The sharder is imported when a run deals."""
    from paceline.sharder.dealing import rows_of_shards

    return rows_of_shards(config, train)


def _launched() -> Any:
    """The run of a launched script; None alone."""
    run = current()
    return None if isinstance(run, Alone) else run


def epochs(count: int) -> Iterator[int]:
    """0, 1, ... below `count`, for the loop over epochs: it ends and resumes with the run, and the last one lasts until the
    run is over. Every epoch takes the mini-batches of `paceline.loader`."""
    return current().epochs(count)


def steps(count: int) -> Iterator[int]:
    """0, 1, ... below `count`, for scripts that draw their mini-batches themselves: one `optimizer.step()` each, or more."""
    return current().steps(count)


def evaluate(
    function: Callable[[], Any],
    *,
    every: int = 1,
    best: str | None = None,
    patience: int | None = None,
    apart: bool = False,
) -> None:
    """Scores the newest global model with `function()` between two epochs of worker 0's loop, in its script's own state; the
    script's model then has the global weights. Where worker 0 is gone, the next worker scores.

    The function returns metrics by name, or the loss as a number. The run's folder keeps the best model and the last one.
    Without the launcher the scores are only printed. `every`: whole epochs between two scores (steps, with `paceline.steps`).
    `best`: what chooses the best model, like "max f1". If it is not given, the accuracy chooses, or the loss where there is no
    accuracy. `patience`: the run ends after this number of scores in a row without a better one. `apart`: a
    separate process scores, from a script's state that never trains, so that no worker waits; in pods one always does."""
    current().evaluate(AskedScores.of(function, every, best, patience, apart=apart))


def notice() -> Notice | None:
    """The notice that this process ends soon, and None while it has none: a signal, or what PACELINE_NOTICE names. Its `source`
    says who gave it; `deadline` when the machine goes (UTC), or None. The `optimizer.step()` that pushes what the worker owes
    raises Stopped, or KeyboardInterrupt after Ctrl-C: look at it in a `finally` around your loop, to save what is yours."""
    return received()


def rank() -> int:
    """This worker's number, from 0; 0 without the launcher. In a process that only scores: the number of workers."""
    return current().rank


def workers() -> int:
    """How many workers the run has; 1 without the launcher."""
    return current().workers
