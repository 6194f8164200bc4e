"""The Trainer of Hugging Face's transformers on Paceline: `from paceline.transformers import Trainer`, in a script that
`paceline launch` starts. Needs transformers and accelerate, the extra `transformers`; without the launcher it is their own."""

import importlib
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.api import script
from paceline.base.extras import needing
from paceline.base.private import make_private, write_private
from paceline.core.errors import ConfigError
from paceline.core.policies.policy import build_policy
from paceline.worker.script.current import current
from paceline.worker.script.tell import tell

with needing("paceline.transformers"):
    _transformers: Any = importlib.import_module("transformers")
    _accelerate: Any = importlib.import_module("accelerate")
_Base: Any = _transformers.Trainer
if not hasattr(_Base, "_run_epoch"):
    raise ConfigError(
        f"paceline.transformers needs a Trainer that is made of parts, and transformers {_transformers.__version__} is "
        "older: pip install 'paceline[transformers]'."
    )
_STATE = "trainer_state.json"
"""The file's name in a checkpoint."""


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
        """A run goes on where its servers are, not at a checkpoint. ConfigError where a new one should begin at one."""
        if self._run.is_alone or not resume_from_checkpoint:
            return super().train(resume_from_checkpoint, **options)
        if self._run.rank == 0:
            notes = self._run.notes(1)  # which the first step writes
            if notes is not None and not notes.exists():
                raise ConfigError(
                    "Trainer.train(resume_from_checkpoint=...) in a new run, whose servers begin at step 0 and take no "
                    "optimizer from a checkpoint. Leave it out; the model may be made by from_pretrained(checkpoint). A run "
                    "that was interrupted goes on by: paceline launch --run NAME."
                )
            tell("the run goes on where it is; the Trainer reads nothing from the checkpoint.")
        return super().train(**options)

    def _init_training_state(self, *args: Any) -> Any:
        """The log and the scores of this worker's process before this one are the Trainer's, too."""
        if self._run.is_alone:
            return super()._init_training_state(*args)
        *before, _, trial = args
        super()._init_training_state(*before, self._notes, trial)
        return 0, 0  # epochs and mini-batches that are passed by: the run knows

    @property
    def _notes(self) -> Path | None:
        """The folder with the state that outlives this process; None where there is none, as in a pod."""
        kept: Path | None = self._run.told.residuals
        return kept and kept / f"{self._run.name}.trainer"

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
            self.state.global_step = done = self._run.position
            self.state.log_history = [line for line in self.state.log_history if line["step"] <= done]
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
            begun = self._run.position / self._run.steps_per_epoch % 1  # by an earlier process
            super()._run_epoch(**{**options, "epoch": epoch + begun})

    def _clip_grad_norm(self, model: Any) -> Any:
        """None: the servers clip the mean gradient, and nothing is clipped here."""
        return None if self._servers_clip else super()._clip_grad_norm(model)

    def _maybe_log_save_evaluate(self, *args: Any, **options: Any) -> None:
        """Worker 0 evaluates and saves; where scores decide on the rate, every worker evaluates."""
        if self._run.rank:
            self.control.should_evaluate &= self.args.lr_scheduler_type == "reduce_lr_on_plateau"
            self.control.should_save = False
        is_news = self.control.should_evaluate or self.control.should_save
        super()._maybe_log_save_evaluate(*args, **options)
        if is_news and not self._run.is_alone and self._notes:
            with suppress(OSError):  # of a full disk: the next process has not these scores
                make_private(self._notes)
                write_private(self._notes / _STATE, json.dumps(asdict(self.state)).encode())
        self.control.should_training_stop |= self._run.is_over

    def _finalize_training(self, *args: Any) -> Any:
        """This worker's share of the run is done. Where the Trainer of worker 0 ends early, the run does."""
        if not self._run.is_alone:
            is_early = self._epoch is not None or next(self._epochs, None) is not None
            if is_early and not self._run.rank and self.state.global_step < self.state.max_steps:
                self._run.stop("the Trainer of worker 0 has stopped")
            self._run.finish()
        return super()._finalize_training(*args)
