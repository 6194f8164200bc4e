"""What [SHAT]'s recipes have in common: its methods on the digits, in virtual time.

As in the paper, the rate is n times that of one worker after a warm-up, each worker has whole mini-batches, and an epoch is one
pass over the data by all workers together. The servers step without momentum, as the paper's Algorithm 1 does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paceline.core.settings.config import Config
from paceline.tasks.task import load_config
from paceline_papers.reproduce.recipe import Around
from paceline_studies.simulator.problem import Problem, problem_of

MODELS = {"ResNet-50": "deep", "VGG-16": "wide"}
"""What stands for the paper's models."""
TASK = Path(__file__).parent / "tasks" / "digits_deep_and_wide.py"
EPOCHS, WARM_UP, BATCH = 30, 3, 32
RATE = 0.005
"""Of one worker: half of the paper's, since these networks have no batch normalisation and many diverge at .01 x 16."""
AS_SMALL = f"The rate is {RATE:g} x n after {WARM_UP} epochs of warm-up and stays so; no momentum, and mini-batches of {BATCH}."
METHODS: Mapping[str, Mapping[str, Any]] = {
    "ENSEMBLE": {"name": "ensemble"},
    "ASP": {"name": "asp"},
    "SHAT-Root": {"name": "shat_root", "alpha_min": 0.0},
    "SHAT": {"name": "shat", "alpha_min": 0.0},
}
"""The paper's four, SHAT with the default reading of its equation 4."""


def config_of(
    policy: Mapping[str, Any],
    workers: int,
    seed: int,
    model: str,
    slow: str = "",
    epochs: int = EPOCHS,
    lr: float = RATE,
    momentum: float = 0.0,
    clip: Mapping[str, float] | None = None,
) -> Config:
    """The settings of one run. `slow`: what the last worker is slower by, like 10x; `lr`: the rate of one worker."""
    return load_config(
        overrides={
            "task": str(TASK),
            "model": model,
            "batch_size": BATCH,
            "batch": "worker",
            "epochs": epochs,
            "optimizer": {"name": "sgd", "lr": lr, "momentum": momentum, "weight_decay": 1e-4},
            "schedule": {"lr_scale": "linear", "warmup_epochs": WARM_UP, "warmup_start": 1.0},
            "clip": dict(clip or {}),
            "policy": dict(policy),
            "workers": workers,
            "servers": 1,
            "seed": seed,
            "slow": {str(workers - 1): slow} if slow else {},
        }
    )


def problem(around: Around, config: Config) -> Problem:
    """What it trains; its shards are shared by all runs of a seed and a number of workers."""
    return problem_of(config, around.folder / f"shards-{config.workers}-{config.seed}")
