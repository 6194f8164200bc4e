"""What a training script of one's own says to Paceline. `paceline launch train.py` runs it as several workers; without the
launcher every function here leaves plain torch as it is. Torch is imported when an optimizer is wrapped, not before."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from paceline.extras import needing
from paceline.notebook import ALONE, in_notebook
from paceline.worker.script.alone import Alone
from paceline.worker.script.current import current

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer
    from torch.utils.data import DataLoader, Sampler, Subset

__all__ = ["epochs", "evaluate", "loader", "rank", "sampler", "split", "steps", "workers", "wrap"]


def wrap(
    optimizer: "Optimizer",
    model: "nn.Module",
    *,
    accumulate: int = 1,
    buffers: Literal["mean", "first", "own"] = "mean",
) -> "Optimizer":
    """The optimizer with the servers behind it: its `step()` pushes the gradients and pulls the weights, as the run's policy
    has it. It has the same parameter groups, and is a torch.optim.Optimizer for schedulers, GradScaler and closures.

    `model`: what is trained, moved to its device before. `accumulate`: mini-batches whose gradients are added up before each
    `step()`. `buffers`: whose running statistics of BatchNorm and the like count: the mean of all workers', worker 0's, or each
    worker's own. Call it once, before the first epoch. ConfigError where the servers can't step so."""
    run = current()
    if isinstance(run, Alone):
        if in_notebook():
            print(ALONE, flush=True)
        return optimizer
    with needing("paceline.wrap"):
        from paceline.worker.script.wrapped_optimizer import wrap as wrapped

    return wrapped(run, optimizer, model, accumulate, buffers)


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

    `batch_size`: examples of a mini-batch of all workers together; each takes batch_size / workers of it. Each epoch takes
    every row once over all workers, in a new order unless `shuffle` is False; with `drop_last` all mini-batches have one size.
    `labels`: one for each row, where data.strategy deals by labels and the data set keeps them elsewhere than torchvision,
    TensorDataset and HuggingFace do. `length`: examples of an epoch of a stream, all workers together. `deals_itself`: a stream
    goes by torch.utils.data.get_worker_info() and gives each reader of the run its part. `options`: as DataLoader has them
    (num_workers, collate_fn, pin_memory, ...). A DataLoader as `dataset` is dealt anew with its own settings. ConfigError where
    the data set or an argument can't be dealt."""
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
    where 64 is each worker's, as with torch's DistributedSampler.

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
    """0, 1, ... below `count`, for scripts that draw their mini-batches themselves, one `optimizer.step()` each."""
    return current().steps(count)


def evaluate(
    function: Callable[[], Any], *, every: int = 1, best: str | None = None, patience: int | None = None
) -> None:
    """Has `function()` score the newest global model, which is in the script's model then, in one process of its own.

    It returns metrics by name, or the loss as a number. `every`: whole epochs between two scores (steps, with
    `paceline.steps`). `best`: what chooses the best model, like "max f1"; else accuracy where it is measured, or the loss. Best
    and last model are kept in the run's folder. `patience`: so many scores in a row without a better one end the run. Without
    the launcher the scores are printed, and no more."""
    current().evaluate(function, every, best, patience)


def rank() -> int:
    """This worker's number, from 0; 0 without the launcher."""
    return current().rank


def workers() -> int:
    """How many workers the run has; 1 without the launcher."""
    return current().workers
