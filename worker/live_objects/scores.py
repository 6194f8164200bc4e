"""Scores a model on each data set: its loss, its accuracy if targets are classes, and the user's metrics."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, Subset

from paceline.core.errors import ConfigError
from paceline.worker.live_objects.computing import are_scores, examples_in, hits, sent
from paceline.worker.live_objects.given_data import GivenData
from paceline.worker.live_objects.live_training import LiveTraining
from paceline.worker.training.explain_task_errors import IGNORED
from paceline.worker.training.split_metrics import AllOutputs

SAMPLE = 1000
"""Least number of training examples that are scored, where there are as many."""
_MEANS = (
    "metrics= get all outputs of a set at once. Give batch_loss=, a function of model and mini-batch, in place of loss=: "
    "metrics are then functions of the same, and means over the mini-batches."
)
_NOT_FOR_SCORES = ("batch_size", "shuffle", "sampler", "batch_sampler", "drop_last")


def score(live: LiveTraining, device: torch.device, seed: int) -> dict[str, float]:
    """'validation_loss', 'test_accuracy' and so on, of the whole sets and of a fixed sample of the training data."""
    sums = _sums(live, device, seed)
    return {f"{name}_{key}": value for name, each in sums.items() for key, value in each.means().items()}


def baseline(live: LiveTraining, device: torch.device, seed: int) -> dict[str, float]:
    """What scores are compared with: the model's `train_loss` as it is now, and of each set whose targets are classes
    `SET_majority`, the share of the largest one (ratio), and `SET_examples`."""
    found: dict[str, float] = {}
    alone = replace(live, computing=replace(live.computing, metrics={}))
    for name, sums in _sums(alone, device, seed).items():
        found |= {"train_loss": sums.loss} if name == "train" else {}
        found |= {f"{name}_{key}": value for key, value in sums.majority().items()}
    return found


def _sums(live: LiveTraining, device: torch.device, seed: int) -> "dict[str, _Sums]":
    """Of the whole sets, and of a fixed sample of the training data."""
    sets = {"train": GivenData(sample(live, seed), loading=live.loading), **live.kept}
    live.model.eval()
    with torch.no_grad():
        return {name: _summed(live, each, device, name) for name, each in sets.items() if each.rows is not None}


def sample(live: LiveTraining, seed: int) -> Any:
    """Some of the training examples, as many as the largest other set has, or SAMPLE; None where they can't be counted."""
    if isinstance(live.train, IterableDataset):
        return None
    count = min(len(live.train), max([SAMPLE, *(each.length or 0 for each in live.kept.values())]))
    rows = np.random.default_rng([seed, 11]).choice(len(live.train), count, replace=False)
    return Subset(live.train, np.sort(rows).tolist())


def _summed(live: LiveTraining, given: GivenData, device: torch.device, name: str) -> "_Sums":
    sums = _Sums(live)
    for batch in _batches(live, given):
        sums.add(live.model, sent(batch, device))
    if sums.is_empty:
        raise ConfigError(f"{name} gave no mini-batches to score. Give a data set that can be read more than once.")
    return sums


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
        self._classes = Counter[int]()
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
            classes, counts = found.targets[found.targets != IGNORED].unique(return_counts=True)
            self._classes.update(dict(zip(classes.tolist(), counts.tolist(), strict=True)))
        if self._computing.batch_loss is not None:
            for name, metric in self._computing.metrics.items():
                self._metrics[name] += float(metric(model, batch)) * count
        elif self._metrics:
            targets = found.targets
            rows = len(targets) if isinstance(targets, Tensor) and targets.ndim else count
            self._all.add(found.outputs, targets, rows)

    @property
    def is_empty(self) -> bool:
        """Whether there was no mini-batch."""
        return not self._examples

    @property
    def loss(self) -> float:
        """Its mean over the examples."""
        return self._loss / self._examples

    def majority(self) -> dict[str, float]:
        """The share of the largest class (ratio), and the number of labels; nothing where targets are no classes."""
        if not self._labels:
            return {}
        return {"majority": max(self._classes.values()) / self._labels, "examples": float(self._labels)}

    def means(self) -> dict[str, float]:
        """The loss, the accuracy where targets are classes, and the user's metrics."""
        found = {"loss": self.loss}
        if self._labels:
            found["accuracy"] = self._hits / self._labels
        if len(self._all):
            outputs, targets = self._all.together()
            return found | {name: float(metric(outputs, targets)) for name, metric in self._computing.metrics.items()}
        return found | {name: total / self._examples for name, total in self._metrics.items()}
