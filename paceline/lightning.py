"""Lightning on Paceline: `Trainer(strategy="paceline")`, or `PacelineStrategy()`, in a script that `paceline launch` starts.
Needs Lightning, the extra `lightning`; without the launcher the same Trainer trains alone, on one device."""

import importlib
import math
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline.api import script
from paceline.base.extras import is_installed, needing
from paceline.core.errors import ConfigError
from paceline.core.policies.policy import build_policy
from paceline.worker.script.current import current

if TYPE_CHECKING:
    import torch


_BOTH = ("lightning.pytorch", "pytorch_lightning")
"""The same under two names, whose classes don't know each other."""
_NEVER = sys.maxsize
"""Steps between two of a scheduler that has ended."""


def _chosen() -> str:
    """The one that the script has imported, otherwise the one that is installed."""
    names = [name for name in _BOTH if name in sys.modules]
    names += [name for name in _BOTH if is_installed(name.partition(".")[0])]
    return next(iter(names), _BOTH[0])


with needing("paceline.lightning"):
    _strategies: Any = importlib.import_module(f"{_chosen()}.strategies")
    _rank_zero: Any = importlib.import_module(f"{_chosen()}.utilities.rank_zero").rank_zero_only
    _is_overridden: Any = importlib.import_module(f"{_chosen()}.utilities.model_helpers").is_overridden
    _Timer: Any = importlib.import_module(f"{_chosen()}.callbacks").Timer
    from paceline.worker.script.schedulers import has_state
_Base: Any = _strategies.SingleDeviceStrategy


class PacelineStrategy(_Base):  # type: ignore[misc]
    """This process's Trainer as one worker of the run. Optimizer, rates and weights are the servers'; the training DataLoader
    is dealt to the workers, those of validation and test are read whole by each; worker 0 alone writes logs and checkpoints,
    and decides whether the run ends early."""

    strategy_name = "paceline"
    optimizers: Any

    def __init__(self, accelerator: Any = None, checkpoint_io: Any = None, precision_plugin: Any = None) -> None:
        super().__init__("cpu", accelerator, checkpoint_io, precision_plugin)
        self._run: Any = current()
        self._epochs: Iterator[int] = iter(())
        self._epoch: int | None = None
        """The one that the run has told and the Trainer has not begun."""
        self._count = 0
        """Of the run's epochs."""
        self.global_rank = self.local_rank = self._run.rank
        self.world_size = self._run.workers
        _rank_zero.rank = self.global_rank

    @property
    def is_global_zero(self) -> bool:
        return bool(self.global_rank == 0)

    @property
    def root_device(self) -> "torch.device":
        """The accelerator's; of several GPUs, workers take turns."""
        import torch

        kind = type(self.accelerator).__name__
        if kind == "CUDAAccelerator":
            return torch.device("cuda", self.local_rank % torch.cuda.device_count())
        return torch.device("mps" if kind == "MPSAccelerator" else "cpu")

    @property
    def _trainer(self) -> Any:
        return self.lightning_module.trainer

    def setup_optimizers(self, trainer: Any) -> None:
        """The servers step, with each of the module's optimizers. ConfigError: it has none."""
        if self._run.is_alone:
            super().setup_optimizers(trainer)
            return
        self._run.accumulate = trainer.accumulate_grad_batches  # configure_optimizers may ask for the epoch's length
        super().setup_optimizers(trainer)
        if not all(one.param_groups for one in self.optimizers):  # Lightning has put an empty one there
            raise ConfigError(
                f"configure_optimizers of {type(self.lightning_module).__name__} gives no optimizer, so there is nothing to "
                "train. Return one."
            )
        how: dict[str, Any] = {"accumulate": trainer.accumulate_grad_batches, "clip_norm": self._clip_norm(trainer)}
        self.optimizers = [
            script.wrap(one, self.lightning_module, schedulers=_with_states(trainer, one), **how)
            for one in self.optimizers
        ]
        for wrapped in self.optimizers:
            wrapped._step_supports_amp_scaling = False  # Lightning clips what is unscaled before
        if self.lightning_module.automatic_optimization:
            for known in self._run.schedulers:
                known.only_named()  # the Trainer knows when it steps the others

    def _clip_norm(self, trainer: Any) -> float | None:
        """Takes the Trainer's largest norm in lock-step, where a step is on the mean gradient, which the servers clip. None:
        Lightning clips this worker's, or the module does."""
        value = trainer.gradient_clip_val
        by_norm = trainer.gradient_clip_algorithm in (None, "norm")
        by_module = _is_overridden("configure_gradient_clipping", self.lightning_module)
        if not value or not by_norm or by_module or not build_policy(self._run.settings.policy).steps_on_mean:
            return None
        trainer.gradient_clip_val = None
        return float(value)

    def process_dataloader(self, dataloader: Any) -> Any:
        """The training data, dealt to the workers; other data as they are."""
        if self._run.is_alone or not self._trainer.training:
            return dataloader
        _refuse_parts_of_epochs(self._trainer)
        return _Dealt(script.loader(dataloader), self._begin_epoch)

    def on_train_start(self) -> None:
        """Joins the run, which says from then on where it is and when it is over. A worker that was started again goes on
        there: its Trainer's epochs and steps, and its schedulers."""
        super().on_train_start()
        if self._run.is_alone:
            return
        loop = self._trainer.fit_loop
        self._count = _length(loop, self._trainer.accumulate_grad_batches)
        self._epochs = self._run.epochs(self._count)
        self._epoch = next(self._epochs, None)
        loop.max_epochs = self._count
        loop.min_epochs = loop.epoch_loop.min_steps = None
        if not self.is_global_zero:  # worker 0 ends the run for all
            loop.epoch_loop.max_steps = -1
            self._trainer.callbacks = [one for one in self._trainer.callbacks if not isinstance(one, _Timer)]
        if self._epoch is None:
            self._trainer.should_stop = True
        elif self._run.position:
            _go_on_from(self._trainer, self._epoch, self._run.position)

    def _begin_epoch(self) -> bool:
        """Has the Trainer count the mini-batches of an epoch that begins, or of the rest of it; False: the run is over.
        Where a fast worker takes over what slow ones have not done, the last one has no end but the run's."""
        epoch = next(self._epochs, None) if self._epoch is None else self._epoch
        self._epoch = None
        if epoch is None:
            return False
        trainer, loop = self._trainer, self._trainer.fit_loop
        done = self._run.position % self._run.steps_per_epoch * self._run.accumulate
        _set(loop.epoch_loop.batch_progress.current, done)
        loop._data_fetcher.fetched = done
        if epoch >= self._count - 1 and self._run.settings.budget == "total":
            if trainer.val_check_batch == loop.max_batches:
                trainer.val_check_batch = math.inf  # at the end of the epoch
            loop.max_batches = math.inf
            loop._data_fetcher.length = None
        return True

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **options: Any) -> Any:
        """One exchange with the servers. After the run's last one, the Trainer ends its epoch and stops."""
        before = None if self._run.is_alone else self._run.steps_made
        found = super().optimizer_step(optimizer, closure, model, **options)
        if before is None:
            return found
        if self._run.steps_made == before and not self._run.is_over:
            optimizer.leave_out()
        if self._run.position >= self._count * self._run.steps_per_epoch:
            for config in self._trainer.lr_scheduler_configs:
                if config.interval == "step":
                    config.frequency = _NEVER  # its schedule ends here; this worker goes on for slower ones
        if self._run.is_over:
            self._trainer.fit_loop.epoch_loop.batch_progress.is_last_batch = True
            self._trainer.should_stop = True
        return found

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Worker 0 decides what any worker may decide for all in Lightning, as for EarlyStopping."""
        return decision and (all or self.is_global_zero)

    def on_train_end(self) -> None:
        """This worker's share of the run is done. Where the Trainer of worker 0 ends early, the run does."""
        super().on_train_end()
        if self._run.is_alone:
            return
        is_early = self._epoch is not None or next(self._epochs, None) is not None
        if is_early and self.is_global_zero:
            self._run.stop("the Trainer of worker 0 has stopped")
        self._run.finish()

    def load_checkpoint(self, checkpoint_path: Any, *more: Any, **options: Any) -> Any:
        """Workers only read a checkpoint that worker 0 has written."""
        try:
            return super().load_checkpoint(checkpoint_path, *more, **options)
        except FileNotFoundError as error:
            if self.is_global_zero:
                raise
            raise ConfigError(
                f"Worker {self.global_rank} has no checkpoint {checkpoint_path}: only worker 0 writes "
                "checkpoints, by its own scores. Put `if trainer.is_global_zero:` before the code that reads the "
                "best one."
            ) from error


class _Dealt:
    """This worker's mini-batches of each epoch. Nothing is drawn before the first is asked for: Lightning makes an iterator
    earlier."""

    def __init__(self, loader: Any, begin: Callable[[], bool]) -> None:
        self._loader = loader
        self._begin = begin

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if self._begin():
            yield from self._loader


def _refuse_parts_of_epochs(trainer: Any) -> None:
    """ConfigError where the Trainer would leave out a part of each epoch, which is the run's to count."""
    for option, whole in (("fast_dev_run", False), ("overfit_batches", 0.0), ("limit_train_batches", 1.0)):
        value = getattr(trainer, option, whole)
        if value != whole and value is not None:
            raise ConfigError(
                f"Trainer({option}={value!r}) takes only a part of each epoch, but a run needs whole epochs. With "
                f"`paceline launch` leave out {option}, and give fewer rows (torch.utils.data.Subset); without "
                "the launcher it works as usual."
            )


def _length(loop: Any, accumulate: int) -> int:
    """The run's, in epochs. ConfigError where the Trainer has none."""
    if loop.max_epochs != -1:
        return int(loop.max_epochs)
    if loop.max_steps != -1:
        return int(-(-loop.max_steps * accumulate // loop.max_batches))
    raise ConfigError("PacelineStrategy needs the length of the run: Trainer(max_epochs=...), or max_steps.")


def _go_on_from(trainer: Any, epoch: int, steps: int) -> None:
    """Has a Trainer that starts again count from there, and its schedulers say the rate that they had."""
    loop = trainer.fit_loop
    _set(loop.epoch_progress.current, epoch)
    _set(loop.epoch_progress.total, epoch)
    inner = loop.epoch_loop
    inner._batches_that_stepped = steps
    _set(inner.automatic_optimization.optim_progress.optimizer.step.total, steps)
    _set(inner.manual_optimization.optim_step_progress.total, steps * len(trainer.optimizers))
    for config in trainer.lr_scheduler_configs if trainer.lightning_module.automatic_optimization else ():
        if not has_state(config.scheduler):
            for _ in range((epoch if config.interval == "epoch" else steps) // config.frequency):
                config.scheduler.step()


def _with_states(trainer: Any, optimizer: Any) -> list[Any]:
    """The optimizer's schedulers that a Trainer can't bring to where the run is."""
    every = [config.scheduler for config in trainer.lr_scheduler_configs]
    return [one for one in every if one.optimizer is optimizer and has_state(one)]


def _set(counts: Any, value: int) -> None:
    """All that Lightning counts of an event."""
    for name in vars(counts):
        setattr(counts, name, value)


_strategies.StrategyRegistry.register(
    PacelineStrategy.strategy_name, PacelineStrategy, description="One worker of a run of Paceline", override=True
)
