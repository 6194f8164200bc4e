"""Lightning on Paceline: `Trainer(strategy=PacelineStrategy())` in a script that `paceline launch` starts. Needs Lightning, the
extra `lightning`; without the launcher the same Trainer trains alone, on one device."""

import importlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from paceline import script
from paceline.core.errors import ConfigError
from paceline.extras import is_installed, needing
from paceline.worker.script.current import current

if TYPE_CHECKING:
    import torch


_BOTH = ("lightning.pytorch", "pytorch_lightning")
"""The same under two names, whose classes don't know each other."""


def _chosen() -> str:
    """The one that the script has imported, else the one that is installed."""
    names = [name for name in _BOTH if name in sys.modules]
    names += [name for name in _BOTH if is_installed(name.partition(".")[0])]
    return next(iter(names), _BOTH[0])


with needing("paceline.lightning"):
    _Base: Any = importlib.import_module(f"{_chosen()}.strategies").SingleDeviceStrategy
    _rank_zero: Any = importlib.import_module(f"{_chosen()}.utilities.rank_zero").rank_zero_only


class PacelineStrategy(_Base):  # type: ignore[misc]
    """This process's Trainer as one worker of the run. Optimizer, rates and weights are the servers'; the training DataLoader
    is dealt to the workers, those of validation and test are read whole by each; worker 0 alone writes logs and checkpoints."""

    strategy_name = "paceline"
    optimizers: Any

    def __init__(self, accelerator: Any = None, checkpoint_io: Any = None, precision_plugin: Any = None) -> None:
        super().__init__("cpu", accelerator, checkpoint_io, precision_plugin)
        self._run = current()
        self._epochs: Iterator[int] = iter(())
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

    def setup_optimizers(self, trainer: Any) -> None:
        """The servers step. ConfigError: the module has several optimizers, or none."""
        super().setup_optimizers(trainer)
        if self._run.is_alone:
            return
        if len(self.optimizers) != 1:
            raise ConfigError(
                f"configure_optimizers of {type(self.lightning_module).__name__} gives {len(self.optimizers)} optimizers; "
                "PacelineStrategy trains with one. Put all parameters into groups of one optimizer."
            )
        own = self.optimizers[0]
        self.optimizers = [script.wrap(own, self.lightning_module, accumulate=trainer.accumulate_grad_batches)]
        own._opt_called = True  # its schedulers watch it; the servers step instead

    def process_dataloader(self, dataloader: Any) -> Any:
        """The training data, dealt to the workers; other data as they are."""
        if self._run.is_alone or not self.lightning_module.trainer.training:
            return dataloader
        return _Dealt(script.loader(dataloader), lambda: self._epochs)

    def on_train_start(self) -> None:
        """The run says when it is over: a fast worker has more epochs than the Trainer was told, a slow one less."""
        super().on_train_start()
        if self._run.is_alone:
            return
        loop = self.lightning_module.trainer.fit_loop
        if loop.max_epochs == -1:
            raise ConfigError("PacelineStrategy needs the length of the run in epochs: Trainer(max_epochs=...).")
        self._epochs = self._run.epochs(loop.max_epochs)
        loop.max_epochs = -1
        loop.min_epochs = loop.epoch_loop.min_steps = None

    def optimizer_step(self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **options: Any) -> Any:
        """One exchange with the servers. After the run's last one, the Trainer stops."""
        found = super().optimizer_step(optimizer, closure, model, **options)
        if self._run.is_over:
            self.lightning_module.trainer.should_stop = True
        return found


class _Dealt:
    """This worker's mini-batches of each epoch. Nothing is drawn, and no run joined, before the first is asked for: Lightning
    makes an iterator earlier."""

    def __init__(self, loader: Any, epochs: Callable[[], Iterator[int]]) -> None:
        self._loader = loader
        self._epochs = epochs

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[Any]:
        if next(self._epochs(), None) is not None:
            yield from self._loader
