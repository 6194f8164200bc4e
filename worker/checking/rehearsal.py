"""Runs a user's training script up to its first step, without servers: reports what would crash every worker before
any of them starts."""

import itertools
import os
import runpy
import sys

import numpy as np
from torch import Tensor

from paceline.base.own_files import where
from paceline.base.variables import CONNECT
from paceline.core.errors import ConfigError, PacelineError, PlanMismatch, is_out_of_memory
from paceline.core.slice.plan import Shapes
from paceline.data.shards import open_shards, take
from paceline.tasks.checks import told
from paceline.tasks.task import load_task
from paceline.worker.checking.check_module import check_wire, telling
from paceline.worker.command_line import ToldScript
from paceline.worker.own_loop import Session
from paceline.worker.startup.start import Start
from paceline.worker.training.model_and_gradient import Replica


def rehearse(script: str, place: ToldScript) -> None:
    """Runs the script; its first step() ends this process with 0, before anything behind it can overwrite what an earlier run
    has left. ConfigError names the script's line that failed."""
    os.environ[CONNECT] = place.json_text()
    sys.argv = [script]
    try:
        runpy.run_path(script, run_name="__main__")
    except PacelineError as error:
        raise type(error)(f"loop: {where(error, script)}: {error}") from error
    except SystemExit as end:
        if end.code:
            raise ConfigError(
                f"loop: {where(end, script)}: it ends with {end.code!r} before its first step()."
            ) from end
    except Exception as error:
        if is_out_of_memory(error):
            raise
        raise ConfigError(f"loop: {where(error, script)}: {told(error)}") from error


class Rehearsal(Session):
    """A session that has one mini-batch, and whose first step() is the end of the process."""

    def step(self, loss: Tensor | float | None = None) -> None:
        """Looks at the gradients. ConfigError where there are none, or the wire can't carry them."""
        if self._batch is None:
            super().step(loss)
            return
        if all(parameter.grad is None for parameter in self.model.parameters()):
            raise ConfigError("session.step() found no gradients in the model. Call backward() on the loss before it.")
        value = loss.detach() if isinstance(loss, Tensor) else loss
        step = self._replica.gathered(None if value is None else float(value), len(self._batch[1]))
        check_wire(self._config, self._replica, np.nan_to_num(step.gradient))
        leave()

    def close(self) -> None:
        """Returns at once, since no loop waits."""
        self._batch = None

    def _join(self, start: Start[ToldScript]) -> None:
        self._config = start.config
        self._check_model(start)
        shards = open_shards(start.told.shards)
        part = [shards.shard(number) for number in range(len(shards))]
        features, labels = take(part, *telling(part, start.config.worker_batch))
        self._batch = self._replica.prepared(features, labels, np.random.default_rng(start.config.seed))

    def _check_model(self, start: Start[ToldScript]) -> None:
        """PlanMismatch where the evaluator, which has the task's model, would refuse this one."""
        config = start.config
        wanted = Replica(load_task(config.task, config.model), "cpu", config.seed).shapes
        if difference := _difference(self._replica.shapes, wanted):
            raise PlanMismatch(
                f"The model differs from that of task '{config.task}': {difference}. Parameters must have the "
                "same names, order and shapes."
            )


def leave() -> None:
    """Ends this process, so that nothing after the script's step() runs."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _difference(shapes: Shapes, wanted: Shapes) -> str:
    """The first parameter in which two models differ, in words."""
    for own, other in itertools.zip_longest(shapes, wanted):
        if own != other:
            ours, theirs = (f"'{each[0]}' of shape {each[1]}" if each else "no further one" for each in (own, other))
            return f"it has {ours} where the task's has {theirs}"
    return ""
