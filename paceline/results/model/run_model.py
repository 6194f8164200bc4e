"""The model that a run has left, read from the run's folder, wherever that is now."""

import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from safetensors import SafetensorError, safe_open

from paceline.base.bounded import MOST_MODEL
from paceline.core.errors import ConfigError, DataError
from paceline.data.inputs import Inputs
from paceline.data.manifest import read_manifest
from paceline.launch.folder.run_folder import RunFolder
from paceline.tasks.task import Task, load_task

if TYPE_CHECKING:
    import torch

_MISSING = 3
"""Names of tensors that an error lists where they don't fit."""


class Trained:
    """What the run in a folder has trained: its settings, task, and models. ConfigError where there is no run."""

    def __init__(self, place: RunFolder, model: "torch.nn.Module | None" = None) -> None:
        """`model`: one of the form that was trained, where no task says it."""
        self.place = place
        self.config = place.settings()
        self._given = model

    @property
    def is_linear(self) -> bool:
        """Whether the model is a linear one over sparse rows, and none of torch."""
        return self.config.updates == "sparse"

    @cached_property
    def task(self) -> Task:
        """What was trained; ConfigError where its file is nowhere, or can't be loaded."""
        return load_task(self.place.task(self.config.task), self.config.model)

    def file(self, which: str = "last") -> Path:
        """The final version's file, or that of the `best` one. DataError: the run was not scored."""
        path = self.place.models / f"{which}.safetensors"
        if not path.is_file():
            logs = self.place.path / "logs"
            raise DataError(f"There is no {path}, because run '{self.place.name}' was not scored. See {logs}.")
        if (size := path.stat().st_size) > MOST_MODEL:
            raise DataError(
                f"{path} has {size:,} bytes; no model is above {MOST_MODEL:,}. It is none of this run: take the other one of "
                "the last and the best model."
            )
        return path

    def module(self, which: str = "last") -> "torch.nn.Module":
        """A model of torch on the CPU, in evaluation mode. DataError: the run was not scored, or the file is damaged;
        ConfigError: it is no model of the task."""
        model = self._new()
        self.load_into(model, which)
        return model.eval()

    def load_into(self, model: "torch.nn.Module", which: str = "last") -> None:
        """The weights that `module` would have, into this model, wherever its parameters are. Errors as there."""
        from safetensors.torch import load_file

        from paceline.worker.script.script_replica import inner

        path = self.file(which)
        own = inner(model) if self.config.is_script else model  # which is what has trained
        try:
            own.load_state_dict(load_file(path))
        except SafetensorError as error:
            raise DataError(
                f"{path} is damaged: {error}. Use the other one of the last and the best model, or train again."
            ) from error
        except RuntimeError as error:
            told = "; ".join(line.strip() for line in str(error).splitlines()[1 : 1 + _MISSING])
            raise ConfigError(f"{path} does not fit {self._owner}: {told} {self._changed}") from None

    def _new(self) -> "torch.nn.Module":
        """A model on the CPU without the trained weights."""
        if self._given is not None:
            return copy.deepcopy(self._given).cpu()
        if self.config.data.source == "script":
            raise ConfigError(
                f"Run '{self.place.name}' keeps the weights of your model, but not its code. Give a model of the "
                f"same form: paceline.Result({str(self.place.path)!r}, model); or load the weights into it: "
                f"model.load_state_dict(safetensors.torch.load_file({str(self.file())!r}))."
            )
        model: torch.nn.Module = self.task.model()
        return model

    @property
    def _owner(self) -> str:
        return "this model" if self.config.data.source == "script" else f"the model of task {self.config.task}"

    @property
    def _changed(self) -> str:
        if self.config.data.source == "script":
            return "Make it as you did for the run."
        return f"Has the task file changed since? What trained it is in {self.place.kept_task(self.config.task)}."

    def inputs(self, which: str = "last") -> Inputs:
        """What it was trained on: as its file says, or for one of an earlier Paceline the run's shards."""
        path = self.file(which)
        try:
            with safe_open(path, "numpy") as file:
                found = Inputs.read(file.metadata() or {})
        except SafetensorError as error:
            raise DataError(
                f"{path} is damaged: {error}. Use the other one of the last and the best model, or train again."
            ) from error
        return found or Inputs.of(read_manifest(self.place.shards))
