"""Trains a linear model over sparse rows on one machine: threads that step one array of weights without a lock."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from paceline.core.errors import ConfigError
from paceline.core.objective import Objective
from paceline.core.optimizer import Rate
from paceline.core.stopping import Stopping
from paceline.core.svm import Examples, LinearModel, Longs, Score, score
from paceline.core.values import Vector

SNAPSHOTS = 32
"""Weights of an epoch that a mean is taken of."""


class LocalSettings(BaseModel):
    """How to train on one machine [Niu et al. 2011]."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    objective: Objective = Objective()
    lr: Rate = 0.5
    lr_decay: float = Field(0.9, gt=0, le=1, description="What lr is multiplied by after every epoch.")
    batch_size: int = Field(1, ge=1, description="Samples of a step.")
    epochs: int = Field(10, ge=1, description="Passes over the data, at most.")
    threads: int = Field(1, ge=1, description="With one, the same settings give the same bits.")
    average: bool = Field(False, description="Take the mean of the weights during the last epoch.")
    stopping: Stopping | None = Field(None, description="Ends the run early, by the validation loss.")
    seed: int = Field(0, ge=0)


class Epoch(NamedTuple):
    """One pass over the data."""

    seconds: float
    """Time of its steps, without scoring."""
    score: Score | None
    """On the validation set; None where there is none."""


class Trained(NamedTuple):
    """What came of a run."""

    weights: Vector
    history: list[Epoch]


def train(
    examples: Examples,
    settings: LocalSettings,
    validation: Examples | None = None,
    clock: Callable[[], float] = perf_counter,
) -> Trained:
    """Trains from weights of 0. ConfigError where training diverges, or where it is to stop early without a validation
    set."""
    if settings.stopping and validation is None:
        raise ConfigError("stopping needs a validation set: keep some examples back, or leave stopping out.")
    rule = settings.stopping.build(settings.lr) if settings.stopping else None
    history: list[Epoch] = []
    with ThreadPoolExecutor(settings.threads) as pool:
        threads = _Threads(examples, settings, pool)
        for epoch in range(settings.epochs):
            start = clock()
            weights = threads.epoch(epoch)
            seconds = clock() - start
            if not np.isfinite(weights).all():
                raise ConfigError(
                    f"Weights are not finite after epoch {epoch + 1}: training has diverged. Lower lr (optimizer.lr)."
                )
            found = score(validation, weights, settings.objective) if validation else None
            history.append(Epoch(seconds, found))
            if rule and found and rule.add(found.total):
                break
    return Trained(weights, history)


class _Threads:
    """One array of weights, and a model on it for each thread: this one and those of a pool."""

    def __init__(self, examples: Examples, settings: LocalSettings, pool: ThreadPoolExecutor) -> None:
        self._examples, self._settings, self._pool = examples, settings, pool
        self._weights = np.zeros(examples.width, np.float32)
        decays = settings.objective.decays(examples.counts)
        self._models = [LinearModel(self._weights, settings.objective, decays) for _ in range(settings.threads)]

    def epoch(self, number: int) -> Vector:
        """One pass, in an order that belongs to this epoch; the weights after it, or their mean over it."""
        settings = self._settings
        order = np.random.default_rng([settings.seed, number]).permutation(len(self._examples))
        lr = settings.lr * settings.lr_decay**number
        if not settings.average:
            self._step(order, lr)
            return self._weights
        total = np.zeros(len(self._weights))
        for stretch in np.array_split(order, SNAPSHOTS):
            self._step(stretch, lr)
            total += self._weights
        return (total / SNAPSHOTS).astype(np.float32)

    def _step(self, rows: Longs, lr: float) -> None:
        """Steps over these rows, shared out among the threads; back when all are done."""
        first, *others = zip(self._models, np.array_split(rows, len(self._models)), strict=True)
        waiting = [self._pool.submit(self._run, *part, lr) for part in others]
        self._run(*first, lr)
        for part in waiting:
            part.result()

    def _run(self, model: LinearModel, rows: Longs, lr: float) -> None:
        model.step(self._examples, rows, self._settings.batch_size, lr)
