"""What both sides of the training benchmark share: the same settings, the same proof of what was learned.

Each side takes `--config` and `--shards`, starts its processes, trains, and only then scores the weights that it kept at
the end of each epoch, so that scoring takes no time from training. It prints one JSON line for each epoch.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.contender import Vector
from paceline.core.settings.config import Config
from paceline.data.shards import Shards, open_shards
from paceline.settings.load_settings import load
from paceline.tasks.task import load_task


class Snapshot(NamedTuple):
    """The weights at the end of an epoch, in model order."""

    seconds: float
    """From the first step on."""
    weights: Vector


class Epoch(NamedTuple):
    """What one epoch had given at its end."""

    seconds: float
    """From the first step on."""
    accuracy: float
    """On the test data (ratio)."""


def settings(data: Path, servers: int, epochs: int, batch: int = 64) -> Config:
    """Two workers in lock-step on the small CNN, `batch` examples a step for each, all training data in their shards.
    Snapshots on disk are put off: the peer writes none."""
    return Config.model_validate(
        {
            "task": "cifar10",
            "model": "cnn",
            "data": {"path": str(data.resolve()), "validation": 0},
            "workers": 2,
            "servers": servers,
            "epochs": epochs,
            "batch_size": batch,
            "batch": "worker",
            "policy": {"name": "bsp"},
            "schedule": {"lr_scale": "none"},
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 0.0},
            "checkpoint": {"every": 3600},
        }
    )


def arguments(description: str | None) -> tuple[Path, Config, Shards]:
    """The file of settings, what is in it, and the shards that the command line names."""
    options = argparse.ArgumentParser(description=description)
    options.add_argument("--config", type=Path, required=True, help="the run's settings (YAML)")
    options.add_argument("--shards", type=Path, required=True, help="folder that the sharder wrote")
    found = options.parse_args()
    return found.config, load(found.config), open_shards(found.shards)


def tell(config: Config, shards: Shards, snapshots: Sequence[Snapshot]) -> None:
    """Scores every snapshot on the test data and prints a line for it. For models without BatchNorm."""
    from paceline.worker.training.model_and_gradient import Replica

    replica = Replica(load_task(config.task, config.model), "cpu", config.seed)
    test = shards.part("test")
    for seconds, weights in snapshots:
        replica.load(weights)
        accuracy = replica.score(np.asarray(test.features), np.asarray(test.labels))["accuracy"]
        print(json.dumps(Epoch(seconds, accuracy)._asdict()), flush=True)
