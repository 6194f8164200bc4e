"""A worker whose training loop is the user's own script: what `paceline.connect` returns.

The mini-batches are the task's, the gradients the script's (worker/loop_thread.py)."""

import time
from collections.abc import Iterator
from types import TracebackType

import numpy as np
import torch
from torch import Tensor, nn

from paceline.core.errors import ConfigError
from paceline.core.rules.check_rules import refuse
from paceline.data.shards import Shards
from paceline.tasks.task import load_task
from paceline.worker.command_line import ToldScript
from paceline.worker.loop_thread import LoopThread
from paceline.worker.module_worker import worker_of
from paceline.worker.startup.run_process import run_process
from paceline.worker.startup.start import Start
from paceline.worker.surroundings import Surroundings
from paceline.worker.training.logged_values import LOGGED
from paceline.worker.training.model_and_gradient import Array, Replica, use_threads
from paceline.worker.training.step_result import Step

Batch = tuple[Tensor, Tensor]


class _Borrowed(Replica):
    """The replica whose gradients a script computes."""

    def __init__(self, start: Start[ToldScript], model: nn.Module | None) -> None:
        config = start.config
        task = load_task(config.task, config.model)
        super().__init__(task, start.told.device, config.seed, model, rank=start.told.rank)
        self.thread = LoopThread()

    def gradient(self, features: Array, labels: Array, seed: int, rng: np.random.Generator | None) -> Step:
        """Waits for the script's; `seed` fixes its dropout, too."""
        torch.manual_seed(seed)
        began = time.monotonic()
        batch = self.prepared(features, labels, rng)
        self.loaded = time.monotonic() - began
        loss: float | None = self.thread.ask(batch)
        return self.gathered(loss, len(labels))

    def prepared(self, features: Array, labels: Array, rng: np.random.Generator | None) -> Batch:
        """What the script gets of them."""
        return self._prepare(features, labels, rng)


class Session:
    """This process as a worker of a run, in the shape of an optimizer. Not thread-safe: use it where it was made.

    with paceline.connect(model) as session:
        for inputs, targets in session.loader():
            session.zero_grad()
            loss = loss_function(model(inputs), targets)
            loss.backward()
            session.step(loss)
    """

    def __init__(self, start: Start[ToldScript], model: nn.Module | None = None) -> None:
        """Joins the run; returns when the model has its weights, or when the run is over. Raises ConfigError where the
        model is not the task's, DataError, ServersGone, Stopped: as a worker does."""
        refuse(start.config, {"loop": start.config.loop or "this script"})
        use_threads(start.told.threads)  # in this thread, which computes
        self._replica = _Borrowed(start, model)
        self._batch: Batch | None = None
        self._join(start)

    def _join(self, start: Start[ToldScript]) -> None:
        """Joins the run; returns with the first mini-batch, or when the run is over."""
        replica = self._replica

        def work(around: Surroundings, shards: Shards) -> None:
            worker = worker_of(start, around, shards, replica)
            worker.progress.logged = LOGGED
            worker.run()

        replica.thread.start(lambda stopping: run_process(start, work, stopping))
        self._await()

    @property
    def model(self) -> nn.Module:
        """The model that is trained, on `device`: the one given to `connect`, or the task's."""
        return self._replica.model

    @property
    def device(self) -> torch.device:
        return self._replica.device

    @property
    def is_over(self) -> bool:
        """Whether the run has ended; the model is then as it was pulled last."""
        return self._batch is None

    def loader(self) -> Iterator[Batch]:
        """Inputs and targets of one mini-batch after the other, prepared by the task and on `device`, until the run says
        stop. They follow this worker's clock: after a restart they go on where the servers know it to be. One `step()`
        for each; ConfigError where there was none."""
        handed: Batch | None = None
        while self._batch is not None:
            if self._batch is handed:
                raise ConfigError(
                    "The loop asked for another mini-batch without session.step() for the last one. Call step() "
                    "once for each mini-batch. To compute a mini-batch in parts, call step() after the "
                    "backward() of the last part."
                )
            handed = self._batch
            yield handed

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients, as torch.optim.Optimizer.zero_grad."""
        self.model.zero_grad(set_to_none)

    def step(self, loss: Tensor | float | None = None) -> None:
        """Pushes the gradients in `.grad` and pulls the weights, as the run's policy has it; returns when the model can go
        on. Gradients that are not finite are left out. `loss` is for `paceline status`. ConfigError after the end."""
        if self._batch is None:
            raise ConfigError(
                "session.step() was called after the end of the run. Loop over session.loader(), which ends with "
                "the run, or check session.is_over."
            )
        value = loss.detach() if isinstance(loss, Tensor) else loss
        self._replica.thread.answer(None if value is None else float(value))
        self._await()

    def close(self) -> None:
        """Leaves the run; before its end, the others go on without this worker. Does nothing the second time."""
        self._close(is_failure=False)

    def _close(self, is_failure: bool) -> None:
        self._batch = None
        self._replica.thread.close(is_failure)

    def __enter__(self) -> "Session":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        ends_well = isinstance(error, SystemExit) and not error.code
        self._close(error is not None and not ends_well and not isinstance(error, KeyboardInterrupt))

    def _await(self) -> None:
        """Until the loop wants a gradient or has ended."""
        self._batch = None
        self._batch = self._replica.thread.wait()
