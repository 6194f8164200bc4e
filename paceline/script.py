"""What a training script of one's own says to Paceline. `paceline launch train.py` runs it as several workers; without the
launcher every function here leaves plain torch as it is. Torch is imported when an optimizer is wrapped, not before."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from paceline.worker.script.alone import Alone
from paceline.worker.script.current import current

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer

__all__ = ["epochs", "evaluate", "rank", "steps", "workers", "wrap"]


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
        return optimizer
    from paceline.worker.script.wrapped_optimizer import wrap as wrapped

    return wrapped(run, optimizer, model, accumulate, buffers)


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
