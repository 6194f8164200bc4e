"""`paceline local`: a linear model on this machine alone, by threads without a lock and without servers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from paceline.base.private import make_private
from paceline.core.chief.best_model import result
from paceline.core.errors import ConfigError, DataError, DiskError
from paceline.core.linear.model import Examples, score
from paceline.core.linear.score import Score
from paceline.core.optimizers.optimizer import build_optimizer
from paceline.core.setting_rules.check_rules import refuse
from paceline.core.setting_rules.rules_of_settings import LOCAL
from paceline.core.settings.config import Config, TableConfig
from paceline.data.costs import costs_of, counted
from paceline.data.dataset import Dataset, PartName, is_sparse
from paceline.data.inputs import Inputs
from paceline.data.linear_labels import check_labels
from paceline.data.linear_model import LOSS, Labels, Parts, save_liblinear, save_safetensors
from paceline.data.row_weights import check_some_count
from paceline.data.splits import split
from paceline.tasks.task import load_task
from paceline.worker.linear.hogwild import Epoch, LocalSettings, train


@dataclass(frozen=True, slots=True)
class Report:
    """What came of it."""

    folder: Path
    examples: int
    seconds: float
    """Of the steps, without reading and scoring."""
    epochs: list[Epoch]
    test: Score | None
    validation: Score | None = None
    """Of the rows that were held back: the model's, not that of an epoch."""
    as_read: tuple[str, ...] = ()
    """How the data was read."""

    def lines(self) -> list[str]:
        """For people; the last line is the test accuracy."""
        told = [f"epoch {number}: {_epoch_line(epoch)}" for number, epoch in enumerate(self.epochs)]
        rate = self.examples * len(self.epochs) / self.seconds if self.seconds else 0.0
        return [
            *self.as_read,
            *told,
            f"{len(self.epochs)} epochs of {self.examples:,} examples in {self.seconds:.3f} s, {rate:,.0f} a second",
            f"The model is {self.folder}/last.safetensors and last.liblinear. Apply it: paceline predict "
            f"{self.folder}/last.safetensors FILE",
            "test accuracy unknown: there is no test set" if self.test is None else result(_named("test", self.test)),
        ]

    @property
    def metrics(self) -> dict[str, float]:
        """As a run has them."""
        return _named("validation", self.validation) | _named("test", self.test)

    def plain(self) -> dict[str, Any]:
        """For programs."""
        return {
            "folder": str(self.folder),
            "examples": self.examples,
            "seconds": self.seconds,
            "epochs": [
                {"seconds": one.seconds, "validation": one.score and one.score._asdict()} for one in self.epochs
            ],
            "validation": self.validation and self.validation._asdict(),
            "test": self.test and self.test._asdict(),
            "as_read": self.as_read,
        }


def train_here(config: Config, threads: int, average: bool, out: Path, data: Dataset | None = None) -> Report:
    """Trains on the task's data with the run's settings; writes the model. `data`: what `read_data` gave, if that has been
    called. ConfigError where the settings are not for a linear model; DataError, DiskError."""
    settings_of(config, threads, average)  # an error in them comes before the data is read
    dataset = data or read_data(config.task, config.model, config.svm.positive, config.data.table, config.data.path)
    train_set, parts, classes, total = _parts(dataset, config)
    settings = settings_of(config, threads, average, classes)
    if config.batch_size > len(train_set):
        raise ConfigError(
            f"batch_size is {config.batch_size:,}, but there are only {len(train_set):,} training examples. Set it "
            "lower."
        )
    _make(out)
    trained = train(train_set, settings, parts.get("validation"), total=total)
    names = dataset.classes or ()
    labels = Labels.of(config.svm.positive, names)
    facts = {"task": config.task, "examples": str(len(train_set)), LOSS: config.svm.objective.loss}
    facts |= Inputs.of_dataset(dataset).facts
    model = Parts.of(trained.weights, classes, config.svm.intercept)
    save_safetensors(out / "last.safetensors", model, labels, facts)
    save_liblinear(out / "last.liblinear", model, labels, config.svm.objective.loss, names)
    objective = config.svm.objective.over(total)

    def scored(name: PartName) -> Score | None:
        part = parts.get(name)
        if part is None:
            return None
        return score(part, trained.weights, objective, classes=classes, own=part.uneven)

    seconds = float(np.sum([epoch.seconds for epoch in trained.history]))
    keeps = (
        config.data.validation > 0 or dataset.validation is not None
    )  # other rows chose when to stop, so don't judge
    scores = scored("test"), scored("validation") if keeps else None
    return Report(out, len(train_set), seconds, trained.history, *scores, dataset.as_read)


def read_data(task: str, model: str | None, positive: str | None, table: TableConfig, path: str) -> Dataset:
    """The task's examples, read whole. DataError where they are bad."""
    found = load_task(task, model, positive, table).data(path)
    found.digest()  # reads mapped files, where NaN may be
    return found


def settings_of(config: Config, threads: int, average: bool, classes: int = 2) -> LocalSettings:
    """The run's settings, as far as they mean something without servers. `average`: take the mean of the last epoch, even
    if they say otherwise. ConfigError for what `paceline local` does not take."""
    refuse(config, {LOCAL: config})
    return LocalSettings(
        objective=config.svm.objective,
        steps=config.svm.steps,
        intercept=config.svm.intercept,
        classes=classes,
        lr=build_optimizer(config.optimizer).lr,
        schedule=config.schedule,
        batch_size=config.batch_size,
        epochs=config.epochs,
        threads=threads,
        mean_from=config.epochs - 1 if average else config.mean_from,
        stopping=config.svm.stopping,
        seed=config.seed,
    )


def _parts(dataset: Dataset, config: Config) -> tuple[Examples, dict[PartName, Examples], int, float]:
    """What trains, what is kept from it, how many classes there are, and what the training rows count together."""
    if not is_sparse(dataset.train.features):
        raise DataError(
            f"data() of task {config.task} gives dense rows; updates: sparse needs a scipy.sparse.csr_array."
        )
    share, key = config.data.validation, "data.validation"
    if not share:
        share, key = config.svm.held_out, "svm.validation"
    parts = split(dataset, share, config.data.test, config.seed, config.data.fold, key)
    labels, own = parts.train.labels, parts.train.weights
    check_labels([labels], {name: part.labels for name, part in parts.kept.items()}, dataset.classes or (), config.task)
    for name, part in parts.kept.items():
        check_some_count(part.weights, f"{name} examples", f"keep more of them ({key}, data.test)")
    counts = counted(labels, own)
    classes = max(2, len(dataset.classes or ()), *(number + 1 for number in counts))
    costs = costs_of(labels, config.svm.class_weights, dataset.classes or (), counts, own)
    kept = {
        name: Examples.of(part.features, part.labels, classes=classes, costs=part.weights)
        for name, part in parts.kept.items()
    }
    train_set = Examples.of(parts.train.features, labels, classes=classes, costs=costs)
    return train_set, kept, classes, sum(counts.values())


def _named(part: PartName, found: Score | None) -> dict[str, float]:
    return {} if found is None else {f"{part}_{name}": value for name, value in found.named.items()}


def _make(out: Path) -> None:
    try:
        make_private(out)
    except OSError as error:
        raise DiskError(f"Can't make {out}: {error.strerror}. Give another folder with --out.") from error


def _epoch_line(epoch: Epoch) -> str:
    if epoch.score is None:
        return f"{epoch.seconds:.3f} s"
    return f"validation loss {epoch.score.total:.4f}, accuracy {epoch.score.accuracy:.4f}, {epoch.seconds:.3f} s"
