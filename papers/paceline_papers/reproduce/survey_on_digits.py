"""What [Survey]'s recipes have in common: its algorithms on the digits with two convolutional networks, in virtual time.

All have the same settings, as in [Survey]: mini-batches of 32 a worker and the digits' rate of .1 for each mini-batch, without
momentum. An epoch is one pass over the data by all workers together."""

from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.recipe import Around, Figures
from paceline_studies.simulator.links import Links
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.training import Curve, training_of

TASKS = Path(__file__).parent / "tasks"
DIGITS = TASKS / "digits_convolutional.py"
WORKERS, BATCH = 8, 32
REACHED = 0.9
"""Accuracy that the time is taken to."""


def config_of(
    policy: Mapping[str, Any],
    model: str,
    seed: int,
    epochs: int,
    *,
    served: bool = True,
    workers: int = WORKERS,
    slow: Mapping[str, str] | None = None,
    task: Path = DIGITS,
    data: str = "bundled",
    warm_up: float = 0.0,
) -> Config:
    """The settings of one run. `served`: with one server, or without; `slow`: which workers are slow, like {7: 10x};
    `warm_up` in epochs."""
    return load_config(
        overrides={
            "task": str(task),
            "data": {"path": data},
            "model": model,
            "batch_size": BATCH,
            "batch": "worker",
            "epochs": epochs,
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.0, "weight_decay": 1e-4},
            "schedule": {"warmup_epochs": warm_up},
            "policy": dict(policy),
            "workers": workers,
            "servers": int(served),
            "seed": seed,
            "slow": dict(slow or {}),
        }
    )


def measured(around: Around, config: Config, links: Links | None = None, spell: int = 1) -> Figures:
    """What a run gave: accuracies, when it reached REACHED (infinity: never), the time until then or to its end, and the
    speed-up over one worker that computes alone. Waiting is a share of all workers' time; the largest lead of a worker is in
    clocks."""
    shards = f"shards-{Path(config.task).stem}-{config.workers}-{config.seed}"
    training, curve = training_of(config, problem_of(config, around.folder / shards), links, spell), Curve()
    trained = training.run(curve.watch)
    scores, times = curve.scores[: config.epochs], curve.times[: config.epochs]
    reached = curve.time_to(REACHED)
    steps = training.gradients * config.epochs * training.examples / trained.examples
    return {
        "mean": mean(scores),
        "last": scores[-1],
        "highest": max(scores),
        "reached": reached,
        "time": min(reached, times[-1]),
        "speed-up": steps / times[-1],
        "waiting": training.waited / config.workers / trained.time,
        "ahead": training.most_ahead,
        "times": times,
        "scores": scores,
    }
