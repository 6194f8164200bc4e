"""What [Sharding]'s recipes have in common at full size: its preset on CIFAR, with each way to deal the images."""

from collections.abc import Callable, Mapping

import numpy as np

from paceline.data.shards import Shards, open_shards
from paceline.results.result import Result
from paceline.tasks.builtin import cifar10, cifar100
from paceline.tasks.task import load_task
from paceline.worker.training.model_and_gradient import Replica
from paceline_papers.reproduce.real_runs import trained
from paceline_papers.reproduce.recipe import Around, Figures, Full
from paceline_papers.reproduce.sharding_methods import Method, sparse_of

NEEDS = {
    "cifar10": f"CIFAR-10: {cifar10.WHERE} with --data.",
    "cifar100": f"CIFAR-100: {cifar100.WHERE} with --data.",
    "cifar100_coarse": f"CIFAR-100: {cifar100.WHERE} with --data.",
}
TRAINS = "{} on {} with the paper's settings, 12 workers and 2 servers, 164 epochs, real processes."
AWARE = {"components": 110, "whiten": True, "standardise": False}
"""What the paper does not tell of its distribution-aware shards; these give Table III's numbers (papers/docs/sharding.md)."""


def full_of(every: Mapping[str, Method], task: str) -> Full:
    """The full size of a table: ResNet-56 on a task's data by each of these methods."""
    return Full(TRAINS.format("ResNet-56", NEEDS[task].partition(":")[0]), NEEDS[task], _run_of(every, task))


def run_of(around: Around, task: str, model: str, name: str, method: Method, seed: int) -> Result:
    """One run with shards of one method. Tables and figures share it."""
    aware = AWARE if method["name"] == "distribution_aware" else {}
    settings = {"task": task, "model": model, "data.strategy": {**method, **aware}, "seed": seed}
    return trained(around, f"{task} {model} {name} seed{seed}", "sharding", settings, keeps=True)


def _run_of(every: Mapping[str, Method], task: str) -> Callable[[Around, str, int], Figures]:
    def run(around: Around, name: str, seed: int) -> Figures:
        result = run_of(around, task, "resnet56", name, every[name], seed)
        shards = open_shards(result.folder / "shards")
        training = of_all_training(result, shards)
        return {
            "training_loss": training["loss"],
            "training_accuracy": training["accuracy"],
            "validation_loss": result.metrics["test_loss"],
            "validation_accuracy": result.metrics["test_accuracy"],
            **sparse_of(shards.manifest),
        }

    return run


def of_all_training(result: Result, shards: Shards) -> dict[str, float]:
    """Loss and accuracy on all training examples, each once; the run's own are those of 2,000."""
    ids = np.concatenate([shards.ids(number) for number in range(len(shards))])
    once = np.sort(np.unique(ids, return_index=True)[1])
    task = load_task(result.config.task, result.config.model)
    return Replica(task, "auto", model=result.model).score(*shards.rows(once))
