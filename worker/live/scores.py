"""Scores a model on each data set: its loss, its accuracy if targets are classes, and the user's metrics."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset

from paceline.core.errors import ConfigError
from paceline.worker.live.computing import are_scores, examples_in, hits, sent
from paceline.worker.live.given_data import GivenData
from paceline.worker.live.live_training import LiveTraining
from paceline.worker.training.all_outputs import AllOutputs

SAMPLE = 1000
"""Least number of training examples that are scored, where there are as many."""
_MEANS = (
    "metrics= get all outputs of a set at once. Give batch_loss=, a function of model and mini-batch, in place of loss=: "
    "metrics are then functions of the same, and means over the mini-batches."
)
_NOT_FOR_SCORES = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


def score(live: LiveTraining, device: torch.device, seed: int) -> dict[str, float]:
    """'validation_loss', 'test_accuracy' and so on, of the whole sets and of a fixed sample of the training data."""
    sets = {"train": GivenData(sample(live, seed), loading=live.loading), **live.kept}
    found: dict[str, float] = {}
    live.model.eval()
    with torch.no_grad():
        for name, each in sets.items():
            if each.rows is not None:
                found |= {f"{name}_{key}": value for key, value in _scored(live, each, device, name).items()}
    return found


def sample(live: LiveTraining, seed: int) -> Any:
    """Some of the training examples, as many as the largest other set has, or SAMPLE; None where they can't be counted."""
    if isinstance(live.train, IterableDataset):
        return None
    count = min(len(live.train), max([SAMPLE, *(each.length or 0 for each in live.kept.values())]))
    rows = np.random.default_rng([seed, 11]).choice(len(live.train), count, replace=False)
    return Subset(live.train, np.sort(rows).tolist())


def _scored(live: LiveTraining, given: GivenData, device: torch.device, name: str) -> dict[str, float]:
    sums = _Sums(live)
    for batch in _batches(live, given):
        sums.add(live.model, sent(batch, device))
    return sums.means(name)


def _batches(live: LiveTraining, given: GivenData) -> Iterator[Any]:
    options = {key: value for key, value in given.loading.items() if key not in _NOT_FOR_SCORES}
    return iter(DataLoader(given.rows, batch_size=live.batch_size, **options))


class _Sums:
    """Sums over the mini-batches of one set."""

    def __init__(self, live: LiveTraining) -> None:
        self._computing = live.computing
        self._examples = 0
        self._loss = 0.0
        self._hits, self._labels = 0, 0
        self._metrics = dict.fromkeys(live.computing.metrics, 0.0)
        self._all = AllOutputs("your model", _MEANS)

    def add(self, model: nn.Module, batch: Any) -> None:
        found, count = self._computing.compute(model, batch), examples_in(batch)
        self._examples += count
        self._loss += float(found.loss) * count
        if are_scores(found.outputs, found.targets):
            right, labels = hits(found.outputs, found.targets)
            self._hits += right
            self._labels += labels
        if self._computing.batch_loss is not None:
            for name, metric in self._computing.metrics.items():
                self._metrics[name] += float(metric(model, batch)) * count
        elif self._metrics:
            targets = found.targets
            rows = len(targets) if isinstance(targets, Tensor) and targets.ndim else count
            self._all.add(found.outputs, targets, rows)

    def means(self, name: str) -> dict[str, float]:
        if not self._examples:
            raise ConfigError(f"{name} gave no mini-batches to score. Give a data set that can be read more than once.")
        found = {"loss": self._loss / self._examples}
        if self._labels:
            found["accuracy"] = self._hits / self._labels
        if len(self._all):
            outputs, targets = self._all.together()
            return found | {name: float(metric(outputs, targets)) for name, metric in self._computing.metrics.items()}
        return found | {name: total / self._examples for name, total in self._metrics.items()}
