"""How much runs differ by the sharding strategy, in [Sharding]'s setting: python -m experiments.sharding [--help]"""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import typer

from experiments.cluster import Outcome, run
from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.shards import open_shards
from paceline.load_settings import load, parse_sets
from paceline.sharder.sharding import make_shards
from paceline.tasks.task import load_task

EXAMPLES = Path(__file__).parents[1] / "examples"
HIDDEN, STRATA = str(EXAMPLES / "hidden_strata.py"), str(EXAMPLES / "hidden_strata_groups.py")
EVERY = ("random", "stratified", "distribution_aware", "round_robin")


def main(
    strategies: Annotated[list[str] | None, typer.Argument(help="Strategies; all of them if not given.")] = None,
    task: Annotated[str, typer.Option(help="What is trained.")] = HIDDEN,
    by: Annotated[
        str | None, typer.Option(help="Task whose rarest class is counted in each shard; default: strata, or the task.")
    ] = None,
    data: Annotated[str, typer.Option(help="Where the data set is.")] = "bundled",
    model: Annotated[str | None, typer.Option(help="Which of the task's models.")] = None,
    workers: Annotated[int, typer.Option(help="How many workers.")] = 12,
    seeds: Annotated[int, typer.Option(help="Runs of each, with seeds 0, 1, ...")] = 5,
    epochs: Annotated[int, typer.Option(help="Epochs of each run, over all workers together.")] = 12,
    step: Annotated[float, typer.Option(help="Emulated computation of a worker's step (seconds).")] = 0.02,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Other settings, like optimizer.lr=0.1.")] = None,
) -> None:
    """Prints one line of a Markdown table as soon as a strategy's runs are done."""
    print(
        f"task {Path(task).stem}, data {Path(data).name}, {workers} workers, 1 server, {epochs} epochs, "
        f"seeds 0 to {seeds - 1}\n"
    )
    print(
        "| strategy | rarest in a shard | validation accuracy, mean | sd | range | test accuracy, mean | sd | range | "
        "staleness | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|", flush=True)
    labels = load_task(by or (STRATA if task == HIDDEN else task)).data(data).train.classes
    assert labels is not None
    for strategy in strategies or EVERY:
        base = base_config(task, data, model, workers, epochs, step, strategy, sets or [])
        every = [base.model_copy(update={"seed": seed}) for seed in range(seeds)]
        counts = np.concatenate([rarest(config, labels) for config in every])
        print(row(strategy, counts, [run(config) for config in every]), flush=True)


def base_config(
    task: str, data: str, model: str | None, workers: int, epochs: int, step: float, strategy: str, sets: Sequence[str]
) -> Config:
    """The settings of one row: nobody waits, a worker takes batch B / n and rate a / n ([Sharding] equations 3 and 4), and
    the rate falls to a tenth after a half and after three quarters of the run, about as He et al. 2015 have it."""
    schedule = {"name": "multistep", "milestones": [epochs / 2, epochs * 3 / 4], "lr_scale": "inverse"}
    settings: dict[str, Any] = {
        "task": task,
        "model": model,
        "workers": workers,
        "servers": 1,
        "epochs": epochs,
        "policy": {"name": "asp"},
        "batch": "global",
        "schedule": schedule,
        "data": {"path": data, "strategy": {"name": strategy}},
        "slow": {"all": "2x"},
        "nominal_step": step,
        "checkpoint": {"every": 60.0},
    }
    return load(None, settings | parse_sets(list(sets)), load_task(task, model).settings)


def rarest(config: Config, labels: Rows) -> Rows:
    """How many examples of the rarest class each shard has; `labels` are those of all training examples, by id."""
    names, counts = np.unique(labels, return_counts=True)
    with TemporaryDirectory() as name:
        make_shards(config, Path(name) / "shards")
        shards = open_shards(Path(name) / "shards")
        held = [labels[shards.shard(number).ids] for number in range(len(shards))]
    return np.array([np.count_nonzero(of_shard == names[counts.argmin()]) for of_shard in held])


def row(strategy: str, counts: Rows, outcomes: list[Outcome]) -> str:
    """One strategy; `counts` of the rarest class, of each shard and seed."""
    figures = [strategy, f"{counts.min()} to {counts.max()}"]
    for metric in ("validation_accuracy", "test_accuracy"):
        found = [outcome.metrics[metric] for outcome in outcomes]
        spread = stdev(found) if len(found) > 1 else 0.0
        figures += [f"{mean(found):.4f}", f"{spread:.4f}", f"{min(found):.4f} to {max(found):.4f}"]
    figures.append(f"{mean(outcome.staleness for outcome in outcomes):.1f}")
    figures.append(f"{mean(outcome.seconds for outcome in outcomes):.1f}")
    return f"| {' | '.join(figures)} |"


if __name__ == "__main__":
    typer.run(main)
