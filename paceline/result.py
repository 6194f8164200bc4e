"""What a finished run gave, read from its folder: model, metrics, staleness, and files for use elsewhere."""

import importlib.util
import shutil
import warnings
from dataclasses import fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.cli.run_folder import RunFolder
from paceline.core.config import Config
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.run import Score
from paceline.settings import read_yaml
from paceline.tasks.task import Task, load_task

if TYPE_CHECKING:
    import torch

_EXAMPLES = 2
"""In the mini-batch that a model is traced with; 1 would be taken for a fixed size."""


class Result:
    """A run in its folder; `Result("runs/NAME")` opens one of an earlier day. ConfigError where there is none."""

    def __init__(self, folder: str | Path) -> None:
        self._place = RunFolder(Path(folder))
        self.config = Config.model_validate(read_yaml(self._place.config))

    def __repr__(self) -> str:
        return f"Result({str(self.folder)!r}, metrics={self.metrics})"

    @property
    def folder(self) -> Path:
        """Settings, logs, models, metrics.jsonl and TensorBoard curves of the run."""
        return self._place.path

    @property
    def seconds(self) -> float:
        """Training time, without the start of the processes (seconds)."""
        return float(self._place.facts().get("seconds", 0.0))

    @property
    def history(self) -> list[Score]:
        """The scores of all epochs, oldest first: epoch, seconds of training, versions, metrics."""
        names = [field.name for field in fields(Score)]
        return [Score(**{name: score[name] for name in names}) for score in self._place.last_status().get("scores", [])]

    @property
    def metrics(self) -> dict[str, float]:
        """The final version's loss and accuracy (ratio), or what the task measures, on each part of the data, like
        'test_accuracy'; empty where the run was not scored."""
        return self._place.final_metrics()

    @property
    def staleness(self) -> dict[str, float]:
        """How old the weights were that gradients were computed on, in folds by other workers: `mean` (of the workers'
        means) and `max`; beside them `wait_seconds`, what a worker waited for others (mean, seconds), and `alpha`, the
        weight of the global model in each worker's last mix (mean, ratio)."""
        figures = [worker["figures"] for worker in self._place.last_status().get("workers", [])]

        def mean(name: str) -> float:
            values = [found[name] for found in figures if name in found]
            return sum(values) / len(values) if values else 0.0

        largest = max((found.get("staleness_max", 0.0) for found in figures), default=0.0)
        return {"mean": mean("staleness_mean"), "max": largest} | {
            name: mean(name) for name in ("wait_seconds", "alpha")
        }

    @cached_property
    def model(self) -> "torch.nn.Module":
        """The trained model on the CPU, in evaluation mode. DataError: the run was not scored."""
        return self._load("last")

    @cached_property
    def best_model(self) -> "torch.nn.Module":
        """The best one of all scored epochs by validation accuracy (or loss, where the task has no accuracy)."""
        return self._load("best")

    def export(self, path: str | Path) -> Path:
        """Writes the trained model in the form that the ending names: .safetensors (weights), .pt (TorchScript, for
        torch.jit.load without the task's code) or .onnx (up to 2 GiB; needs the extra `onnx`). Mini-batches may have any
        size there. ConfigError: another ending, or a model that can't be traced; DiskError: it can't be written."""
        target = Path(path)
        write = {".safetensors": self._copy, ".pt": self._trace, ".onnx": self._convert}.get(target.suffix)
        if write is None:
            raise ConfigError(f"Can't export to {target}: its ending must be .safetensors, .pt (TorchScript) or .onnx.")
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(target)
        except OSError as error:
            raise DiskError(
                f"Can't write {target}: {error.strerror}. Is there space, and may this user write?"
            ) from error
        return target

    def _copy(self, target: Path) -> None:
        shutil.copyfile(self._file("last"), target)

    def _trace(self, target: Path) -> None:
        import torch

        model, inputs = self.model, self._inputs()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # about TorchScript itself
            try:
                traced = torch.jit.trace(model, inputs)  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                raise ConfigError(f"The model of task '{self._task.name}' can't be traced: {error}") from error
            target.write_bytes(traced.save_to_buffer())

    def _convert(self, target: Path) -> None:
        for package in ("onnx", "onnxscript"):
            if importlib.util.find_spec(package) is None:
                raise ConfigError(
                    f"Export to ONNX needs the package {package}. Install it: pip install 'paceline[onnx]'."
                )
        import torch

        batch = torch.export.Dim("batch")
        try:
            program = torch.onnx.export(
                self.model, (self._inputs(),), dynamo=True, dynamic_shapes=({0: batch},), verbose=False
            )
        except torch.onnx.OnnxExporterError as error:
            raise ConfigError(f"The model of task '{self._task.name}' can't be exported to ONNX: {error}") from error
        assert program is not None
        program.save(target, external_data=False)

    @cached_property
    def _task(self) -> Task:
        return load_task(self.config.task, self.config.model)

    def _file(self, which: str) -> Path:
        path = self._place.models / f"{which}.safetensors"
        if not path.is_file():
            raise DataError(f"There is no {path}: run '{self._place.name}' was not scored. See {self.folder / 'logs'}.")
        return path

    def _load(self, which: str) -> "torch.nn.Module":
        from safetensors.torch import load_file

        model: Any = self._task.model()
        model.load_state_dict(load_file(self._file(which)))
        return model.eval()  # type: ignore[no-any-return]

    def _inputs(self) -> "torch.Tensor":
        """A few examples of the run's own data, as the model takes them."""
        from paceline.data.shards import open_shards

        shard = open_shards(self._place.shards).shard(0)
        return self._task.prepare(shard.features[:_EXAMPLES], shard.labels[:_EXAMPLES], None)[0]
