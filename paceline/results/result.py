"""What a finished run gave, read from its folder: model, metrics, staleness, and files for use elsewhere."""

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.core.chief.best_model import number
from paceline.core.chief.scoring import Score
from paceline.core.chief.warnings import RunWarning
from paceline.launch.folder.run_folder import RunFolder
from paceline.launch.status.recoveries import Recovery
from paceline.results.model.export import export
from paceline.results.model.run_model import Trained
from paceline.results.report.report import write_report

if TYPE_CHECKING:
    import torch


class Result:
    """A run in its folder; `Result("runs/NAME")` opens one of an earlier day. `model`: one like that which a run of live
    objects or of a script has trained, for `model` and `best_model`; it is left as it is. ConfigError where there is no run."""

    def __init__(self, folder: str | Path, model: "torch.nn.Module | None" = None) -> None:
        self._place = RunFolder(Path(folder))
        self._trained = Trained(self._place, model)
        self.config = self._trained.config

    def __repr__(self) -> str:
        told = {name: float(number(value)) for name, value in sorted(self.metrics.items())}
        return f"Result({str(self.folder)!r}, metrics={told})"

    @property
    def folder(self) -> Path:
        """Settings, logs, models, metrics.jsonl and TensorBoard curves of the run."""
        return self._place.path

    @property
    def seconds(self) -> float:
        """Training time, without the start of the processes (seconds)."""
        return float(self._end.get("seconds") or self._place.last_status().get("seconds", 0.0))

    @property
    def _end(self) -> dict[str, Any]:
        return RunFolder.of_its_end(self._place.facts())

    @property
    def history(self) -> list[Score]:
        """The scores of all epochs, oldest first: epoch, seconds of training, versions, metrics, and how many examples of
        each split they are of."""
        return [Score.of(kept) for kept in self._place.last_status().get("scores", [])]

    @property
    def metrics(self) -> dict[str, float]:
        """The final version's loss and accuracy (ratio), or what the task measures, on each part of the data, like
        'test_accuracy'; empty where the run was not scored."""
        return self._place.final_metrics()

    @property
    def accuracy(self) -> float | None:
        """The final version's on the test data (ratio); None where the task has none, a regression say, or there is no
        test part."""
        return self.metrics.get("test_accuracy")

    @property
    def warnings(self) -> list[RunWarning]:
        """What went wrong although the run went on, oldest first: what was `said`, the `advice`, the `epoch` when it was seen,
        and whether it has `passed`."""
        found = self._end.get("warnings") or self._place.last_status().get("warnings", [])
        return [RunWarning(**each) for each in found]

    @property
    def recovery(self) -> Recovery:
        """What the last launch of the run took to recover from deaths: `servers`, their starts from a snapshot; `damaged`
        snapshots passed over; pushes `replayed`, mini-batches `rerun`; how often all servers `went_back` to a common snapshot;
        and how long workers `waited` for others to come back (seconds). All 0 where nothing died; as text it is a sentence."""
        return Recovery(**self._end.get("recovery", {}))

    @property
    def staleness(self) -> dict[str, float]:
        """How old the weights were that gradients were computed on, in folds by other workers: `mean` (of the workers'
        means) and `max`; next to them `wait_seconds`, what a worker waited for others (mean, seconds), and `alpha`, the
        weight of the global model in each worker's last mix (mean, ratio)."""
        figures = [worker["figures"] for worker in self._place.last_status().get("workers", [])]

        def mean(name: str) -> float:
            values = [found[name] for found in figures if name in found]
            return sum(values) / len(values) if values else 0.0

        largest = max((found.get("staleness_max", 0.0) for found in figures), default=0.0)
        return {"mean": mean("staleness_mean"), "max": largest} | {
            name: mean(name) for name in ("wait_seconds", "alpha")
        }

    def report(self, path: str | Path | None = None) -> Path:
        """Writes one HTML page on the run (`paceline report`) to this file, or to report.html in its folder, and says where
        it is. ConfigError: matplotlib is not installed; DiskError: it can't be written."""
        return write_report(self._place, None if path is None else Path(path)).path

    @cached_property
    def model(self) -> "torch.nn.Module":
        """The trained model on the CPU, in evaluation mode. DataError: the run was not scored."""
        return self._trained.module("last")

    @cached_property
    def best_model(self) -> "torch.nn.Module":
        """The best one of all scored epochs on validation data, by the task's measure: BEST, otherwise accuracy where
        it is measured, otherwise the loss."""
        return self._trained.module("best")

    def load_into(self, model: "torch.nn.Module", best: bool = False) -> None:
        """The trained weights, or the best ones, into a model of the same form, wherever its parameters are. ConfigError: it
        has another form; DataError: the run was not scored."""
        self._trained.load_into(model, "best" if best else "last")

    def export(self, path: str | Path, best: bool = False) -> Path:
        """Writes the trained model, or the best one, in the form that the ending names: .safetensors (weights), .pt2 (for
        torch.export.load) or .pt (TorchScript, for torch.jit.load), both without the task's code, or .onnx (up to 2 GiB;
        needs the extra `onnx`); a linear model as .safetensors or .liblinear. Mini-batches may have any size there.
        ConfigError: another ending, or a model that can't be written so; DiskError: it can't be written."""
        return export(self._trained, path, "best" if best else "last")
