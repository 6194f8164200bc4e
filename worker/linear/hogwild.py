"""Trains a linear model over sparse rows on one machine: threads that step one array of weights without a lock."""

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Literal, NamedTuple

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from paceline.core.errors import ConfigError
from paceline.core.linear.model import Examples, Fit, Longs, score
from paceline.core.linear.objective import Objective
from paceline.core.linear.one_vs_rest import AnyModel, linear_model
from paceline.core.linear.score import Score
from paceline.core.linear.stopping import Stopping
from paceline.core.optimizers.optimizer import Rate
from paceline.core.optimizers.schedule import Schedule
from paceline.core.settings.config import ScheduleConfig
from paceline.core.values import Vector

SNAPSHOTS = 32
"""Stretches of an epoch: a mean is taken of the weights behind each, and a rate that falls smoothly falls before each."""


class LocalSettings(BaseModel):
    """The settings of training on one machine [Niu et al. 2011]."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    objective: Objective = Objective()
    steps: Literal["plain", "fitted"] = "plain"
    intercept: bool = False
    classes: int = 2
    lr: Rate = 0.5
    schedule: ScheduleConfig = ScheduleConfig(name="step", every=1, gamma=0.9)
    batch_size: int = Field(1, ge=1, description="Samples of a step.")
    epochs: int = Field(10, ge=1, description="Passes over the data, at most.")
    threads: int = Field(1, ge=1, description="With one, the same settings give the same bits.")
    mean_from: float | None = Field(None, ge=0, description="Take the mean of the weights since this epoch.")
    stopping: Stopping | None = Field(None, description="Ends the run early, by the validation loss.")
    seed: int = Field(0, ge=0)


class Epoch(NamedTuple):
    """One pass over the data."""

    seconds: float
    """Time of its steps, without scoring."""
    score: Score | None
    """The loss on the validation set; None without one."""


class Trained(NamedTuple):
    """The result of a run."""

    weights: Vector
    history: list[Epoch]


def train(
    examples: Examples,
    settings: LocalSettings,
    validation: Examples | None = None,
    clock: Callable[[], float] = perf_counter,
    total: float | None = None,
) -> Trained:
    """Trains from weights of 0. `total`: what the examples count together, by default how many they are; costs of validation
    rows are their weights. ConfigError where training diverges, or where it is to stop early without a validation
    set."""
    if settings.stopping and validation is None:
        raise ConfigError("stopping needs a validation set: set data.validation above 0, or leave out stopping.")
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
            found = _scored(validation, weights, settings, len(examples) if total is None else total)
            history.append(Epoch(seconds, found))
            looks = settings.stopping and settings.stopping.looks_at(epoch, settings.epochs, settings.steps == "fitted")
            if rule and found and looks and rule.add(found.total):
                break
    return Trained(weights, history)


def _scored(validation: Examples | None, weights: Vector, settings: LocalSettings, total: float) -> Score | None:
    if validation is None:
        return None
    objective = settings.objective.over(total)
    return score(validation, weights, objective, classes=settings.classes, own=validation.uneven)


class _Threads:
    """One array of weights, and a model on it for each thread: this one and those of a pool."""

    def __init__(self, examples: Examples, settings: LocalSettings, pool: ThreadPoolExecutor) -> None:
        self._examples = examples
        self._settings = settings
        self._pool = pool
        intercept, classes = settings.intercept, settings.classes
        self._weights = np.zeros((examples.width + intercept) * (1 if classes == 2 else classes), np.float32)
        decays = settings.objective.decays(lambda: examples.counts(intercept))
        fit = Fit.of(examples, intercept) if settings.steps == "fitted" else None
        self._models = [
            linear_model(self._weights, classes, settings.objective, decays, fit=fit) for _ in range(settings.threads)
        ]
        self._schedule = Schedule(settings.schedule, settings.epochs)
        self._total = np.zeros(len(self._weights))
        """Sum of the weights that the mean is of."""
        self._count = 0
        """How many these are."""

    def epoch(self, number: int) -> Vector:
        """One pass, in an order that belongs to this epoch; the weights after it, or their mean where that has begun."""
        settings = self._settings
        order = np.random.default_rng([settings.seed, number]).permutation(len(self._examples))
        begin = math.inf if settings.mean_from is None else settings.mean_from
        is_cut = settings.schedule.name not in ("constant", "step") or number + 1 > begin
        for place, stretch in enumerate(np.array_split(order, SNAPSHOTS) if is_cut else [order]):
            epoch = number + place / SNAPSHOTS
            self._step(stretch, settings.lr * self._schedule.shape(epoch))
            if epoch >= begin:
                self._total += self._weights
                self._count += 1
        return (self._total / self._count).astype(np.float32) if self._count else self._weights

    def _step(self, rows: Longs, lr: float) -> None:
        """Steps over these rows, divided among the threads; returns when all are done."""
        first, *others = zip(self._models, np.array_split(rows, len(self._models)), strict=True)
        waiting = [self._pool.submit(self._run, *part, lr) for part in others]
        self._run(*first, lr)
        for part in waiting:
            part.result()

    def _run(self, model: AnyModel, rows: Longs, lr: float) -> None:
        model.step(self._examples, rows, self._settings.batch_size, lr)
