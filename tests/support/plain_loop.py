"""Trains a task as one process would: what a run with one worker does, without a run."""

from typing import Any

import numpy as np
import torch

from paceline.data.dataset import Labelled
from paceline.tasks.task import Task
from paceline.worker.training.model_and_gradient import Replica, use_threads


def trained(task: Task, train: Labelled, **changes: Any) -> Replica:
    """A replica after SGD with the task's own settings, or with `changes` to them: epochs, batch_size, lr, seed. On one
    thread: models are small, and other suites may share the machine."""
    settings = {"seed": 0, **task.settings, **task.settings["optimizer"], **changes}
    threads = torch.get_num_threads()
    use_threads(1)
    try:
        return _trained(task, train, settings)
    finally:
        use_threads(threads)


def _trained(task: Task, train: Labelled, settings: dict[str, Any]) -> Replica:
    replica = Replica(task, seed=settings["seed"])
    rng = np.random.default_rng(settings["seed"])
    velocity = np.zeros_like(replica.local)
    for epoch in range(settings["epochs"]):
        order = rng.permutation(len(train))
        for start in range(0, len(train), settings["batch_size"]):
            rows = order[start : start + settings["batch_size"]]
            step = replica.gradient(train.features[rows], train.labels[rows], seed=epoch, rng=rng)
            velocity = settings["momentum"] * velocity + step.gradient
            replica.load(replica.local - settings["lr"] * velocity)
    return replica
