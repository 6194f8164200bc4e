"""The Trainer of Hugging Face's transformers on Paceline: `from paceline.transformers import Trainer`, in a script that
`paceline launch` starts. Needs transformers and accelerate, the extra `transformers`; without the launcher it is their own."""

import importlib
from collections.abc import Iterator
from typing import Any

from paceline.api import script
from paceline.base.extras import needing
from paceline.core.errors import ConfigError
from paceline.core.policies.policy import build_policy
from paceline.worker.script.current import current

with needing("paceline.transformers"):
    _transformers: Any = importlib.import_module("transformers")
    _accelerate: Any = importlib.import_module("accelerate")
_Base: Any = _transformers.Trainer
if not hasattr(_Base, "_run_epoch"):
    raise ConfigError(
        f"paceline.transformers needs a Trainer that is made of parts, and transformers {_transformers.__version__} is "
        "older: pip install 'paceline[transformers]'."
    )


class Trainer(_Base):  # type: ignore[misc]
    """This process's Trainer as one worker of the run. Optimizer, rates and weights are the servers'; the training data are
    dealt to the workers; worker 0 alone evaluates, writes logs and checkpoints, and decides whether the run ends early."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self._run: Any = current()
        self._epochs: Iterator[int] = iter(())
        self._epoch: int | None = None
        """The one that the run has told and the Trainer has not begun."""
        self._servers_clip = False
        if not self._run.is_alone:
            state = _accelerate.PartialState()
            state.process_index = state.local_process_index = self._run.rank  # who writes
        super().__init__(*args, **options)

    def get_train_dataloader(self) -> Any:
        """The training data, dealt to the workers."""
        data = super().get_train_dataloader()
        if self._run.is_alone:
            return data
        self._run.accumulate = self.args.gradient_accumulation_steps
        return script.loader(data, self._train_batch_size)

    def train(self, resume_from_checkpoint: Any = None, **options: Any) -> Any:
        """ConfigError where a checkpoint should say where the run is."""
        if resume_from_checkpoint and not self._run.is_alone:
            raise ConfigError(
                "Trainer.train(resume_from_checkpoint=...) goes on from a checkpoint, but the servers know where a run is. "
                "Leave it out; `paceline launch --run NAME` goes on with that run."
            )
        return super().train(resume_from_checkpoint, **options)

    def create_optimizer(self, *model: Any) -> Any:
        """The servers step with it."""
        own = super().create_optimizer(*model)
        if self._run.is_alone or self._run.described[0]:
            return own
        norm = self.args.max_grad_norm or None
        self._servers_clip = norm is not None and build_policy(self._run.settings.policy).steps_on_mean
        how = {"accumulate": self._run.accumulate, "clip_norm": norm if self._servers_clip else None}
        self.optimizer = script.wrap(own, self.model, **how)
        return self.optimizer

    def _prepare_for_training(self, *args: Any) -> Any:
        """Joins the run, which says from then on where it is and when it is over. A worker that was started again goes on
        there."""
        prepared = super()._prepare_for_training(*args)
        if not self._run.is_alone:
            self._epochs = self._run.epochs(self.state.num_train_epochs)
            self._epoch = next(self._epochs, None)
            self.state.global_step = self._run.position
        return prepared

    def _run_epoch(self, **options: Any) -> None:
        """One of the run's. Those that an earlier process of this worker has trained are passed by."""
        if self._run.is_alone:
            super()._run_epoch(**options)
            return
        epoch = next(self._epochs, None) if self._epoch is None else self._epoch
        self._epoch = epoch if epoch is not None and options["epoch"] < epoch else None
        if epoch is None:
            self.control.should_training_stop = True
        elif self._epoch is None:
            super()._run_epoch(**options)

    def _clip_grad_norm(self, model: Any) -> Any:
        """None: the servers clip the mean gradient, and nothing is clipped here."""
        return None if self._servers_clip else super()._clip_grad_norm(model)

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        """Worker 0 evaluates and saves; where scores decide on the rate, every worker evaluates."""
        if self._run.rank:
            self.control.should_evaluate &= self.args.lr_scheduler_type == "reduce_lr_on_plateau"
            self.control.should_save = False
        super()._maybe_log_save_evaluate(*args, **options)
        self.control.should_training_stop |= self._run.is_over

    def _finalize_training(self, *args: Any) -> Any:
        """This worker's share of the run is done. Where the Trainer of worker 0 ends early, the run does."""
        if not self._run.is_alone:
            is_early = self._epoch is not None or next(self._epochs, None) is not None
            if is_early and not self._run.rank and self.state.global_step < self.state.max_steps:
                self._run.stop("the Trainer of worker 0 has stopped")
            self._run.finish()
        return super()._finalize_training(*args)
