"""What some of our own recipes have in common: a user who says what trains the digits well in one process, and a policy. The
rest is the policy's default, and what Paceline makes of the settings for n workers."""

from collections.abc import Iterable, Mapping
from typing import Any

from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.pictures import lines
from paceline_papers.reproduce.recipe import Around, Column, Figures, Runs
from paceline_studies.simulator.problem import Problem, problem_of
from paceline_studies.simulator.training import train

EPOCHS = 10
AS_GOOD = 0.01
"""Accuracy that a policy may end below another and be called as good."""
WORKERS = (4, 8, 16)
COLUMNS = {
    **{f"accuracy-{count}": Column(f"accuracy, n = {count}") for count in WORKERS},
    **{f"time-{count}": Column(f"time, n = {count}", ".0f") for count in WORKERS},
}
SMALL = "The digits, mini-batch 32, SGD .1 with momentum .9, 10 epochs, in virtual time."


def config_of(policy: Mapping[str, Any], workers: int, seed: int, servers: int = 1, slow: str = "") -> Config:
    """The settings of one run. `slow`: what the last worker is slower by, like 10x."""
    return load_config(
        overrides={
            "task": "digits",
            "batch_size": 32,
            "epochs": EPOCHS,
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            "policy": dict(policy),
            "workers": workers,
            "servers": servers,
            "seed": seed,
            "slow": {str(workers - 1): slow} if slow else {},
        }
    )


def problem(around: Around, config: Config) -> Problem:
    """What it trains; its shards are shared by all runs of a seed and a number of workers."""
    return problem_of(config, around.folder / f"shards-{config.workers}-{config.seed}")


def trained(around: Around, config: Config) -> Figures:
    """Accuracy on the test examples (ratio), and time in steps of an equal worker."""
    of = problem(around, config)
    found = train(config, of)
    return {"accuracy": of.measures(found.model)["test_accuracy"], "time": found.time}


def row(policy: str, cluster: str) -> str:
    """The name of a policy's runs in a cluster."""
    return f"{policy}, {cluster}"


def by_workers(around: Around, policy: Mapping[str, Any], seed: int, servers: int = 1, slow: str = "") -> Figures:
    """The figures of `COLUMNS` for one policy in one cluster."""
    found: dict[str, Any] = {}
    for workers in WORKERS:
        config = config_of(policy, workers, seed, servers, slow)
        found |= {f"{figure}-{workers}": number for figure, number in trained(around, config).items()}
    return found


def drawn(runs: Runs, policies: Iterable[str], clusters: Iterable[str]) -> Figure:
    """Accuracy by workers: a panel for each cluster, a line for each policy."""
    panels = {
        cluster: {policy: [runs.of(row(policy, cluster), f"accuracy-{n}") for n in WORKERS] for policy in policies}
        for cluster in clusters
    }
    return lines(panels, WORKERS, "workers", "test accuracy", log=True)
