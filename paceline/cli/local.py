"""`paceline local`: a linear model on this machine alone, by threads without a lock and without servers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.core.config import Config
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.svm import Examples, Score, score
from paceline.data.dataset import Dataset, is_sparse
from paceline.data.linear_model import Labels, save_liblinear, save_safetensors
from paceline.data.splits import split
from paceline.tasks.task import load_task
from worker.hogwild import Epoch, LocalSettings, Trained, train


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    folder: Path
    examples: int
    seconds: float
    """Of the steps, without reading and scoring."""
    epochs: list[Epoch]
    test: Score | None

    def lines(self) -> list[str]:
        """For people; the last line is the test accuracy."""
        told = [f"epoch {number}: {_told(epoch)}" for number, epoch in enumerate(self.epochs)]
        rate = self.examples * len(self.epochs) / self.seconds if self.seconds else 0.0
        return [
            *told,
            f"{len(self.epochs)} epochs of {self.examples:,} examples in {self.seconds:.3f} s, {rate:,.0f} a second",
            f"The model is {self.folder}/last.safetensors and last.liblinear. Apply it: paceline predict "
            f"{self.folder}/last.safetensors FILE",
            "test accuracy unknown: there is no test set" if self.test is None else
            f"test accuracy {self.test.accuracy:.4f}, precision {self.test.precision:.4f}, recall {self.test.recall:.4f}, "
            f"loss {self.test.total:.4f}",
        ]  # fmt: skip

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.folder), "examples": self.examples, "seconds": self.seconds,
            "epochs": [{"seconds": one.seconds, "validation": one.score and one.score._asdict()} for one in self.epochs],
            "test": self.test and self.test._asdict(),
        }  # fmt: skip


def train_here(config: Config, threads: int, average: bool, out: Path) -> Report:
    """Trains on the task's data with the run's settings; writes the model. ConfigError where the settings are not for a linear
    model; DataError, DiskError."""
    if config.updates != "sparse":
        raise ConfigError(
            f"Task {config.task} has updates: {config.updates}; `paceline local` trains linear models, which have updates: "
            "sparse, like task svm."
        )
    settings = settings_of(config, threads, average)
    dataset = load_task(config.task, config.model, config.svm.positive).data(config.data.path)
    dataset.digest()  # reads mapped files, where NaN may be
    train_set, validation, test = _parts(dataset, config)
    if config.batch_size > len(train_set):
        raise ConfigError(f"batch_size is {config.batch_size:,}, but only {len(train_set):,} examples train. Lower it.")
    _make(out)
    trained = train(train_set, settings, validation)
    labels, facts = Labels.against_others(config.svm.positive), {"task": config.task, "examples": str(len(train_set))}
    save_safetensors(out / "last.safetensors", trained.weights, labels, facts)
    save_liblinear(out / "last.liblinear", trained.weights, labels, config.svm.objective.loss)
    return _report(config, out, len(train_set), trained, test)


def settings_of(config: Config, threads: int, average: bool) -> LocalSettings:
    """The run's settings, as far as they mean something without servers. ConfigError for a schedule that is not known here."""
    schedule = config.schedule
    each_epoch = schedule.name == "step" and schedule.every == 1
    if schedule.warmup_epochs:
        raise ConfigError("schedule.warmup_epochs is set, but `paceline local` has no warm-up; leave it out.")
    if schedule.name != "constant" and not each_epoch:
        raise ConfigError(
            f"schedule.name is {schedule.name}; `paceline local` knows constant, and step with every 1 and a gamma."
        )
    return LocalSettings(
        objective=config.svm.objective, lr=float(config.optimizer.options["lr"]),
        lr_decay=schedule.gamma if each_epoch else 1.0, batch_size=config.batch_size, epochs=config.epochs,
        threads=threads, average=average, stopping=config.svm.stopping, seed=config.seed,
    )  # fmt: skip


def _parts(dataset: Dataset, config: Config) -> tuple[Examples, Examples | None, Examples | None]:
    if not is_sparse(dataset.train.features):
        raise DataError(
            f"data() of task {config.task} gives dense rows; updates: sparse needs a scipy.sparse.csr_array."
        )
    parts = split(dataset, config.svm.validation, config.data.test, config.seed, config.data.fold, "svm.validation")
    kept = {name: Examples.of(part.features, part.labels) for name, part in parts.kept.items()}
    return Examples.of(parts.train.features, parts.train.labels), kept.get("validation"), kept.get("test")


def _make(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DiskError(f"Can't make {out}: {error.strerror}. Give another folder with --out.") from error


def _report(config: Config, out: Path, examples: int, trained: Trained, test: Examples | None) -> Report:
    found = None if test is None else score(test, trained.weights, config.svm.objective)
    return Report(out, examples, float(np.sum([epoch.seconds for epoch in trained.history])), trained.history, found)


def _told(epoch: Epoch) -> str:
    if epoch.score is None:
        return f"{epoch.seconds:.3f} s"
    return f"validation loss {epoch.score.total:.4f}, accuracy {epoch.score.accuracy:.4f}, {epoch.seconds:.3f} s"
