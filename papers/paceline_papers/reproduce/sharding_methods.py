"""What [Sharding]'s Tables II to V have in common: its methods in its setting, in virtual time.

12 workers and 2 servers, asynchronous. As equations 3 and 4 have it, a worker takes floor(B / n) examples at rate a / n. The
paper's validation metrics are those of the test images; training metrics are of the whole training set. What its tables call
variance are standard deviations: Table III has three of the five runs with 20 clusters; their accuracies have a standard
deviation of .0008 and a variance of 6e-7, and Table II says .00065."""

from collections.abc import Callable, Mapping, Sequence
from math import nan
from statistics import fmean
from typing import Any

from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.data.manifest import Manifest
from paceline.data.shards import open_shards
from paceline.tasks.task import load_config
from paceline_papers.reproduce.claims import Above, Claim, MoreSpread, Numbers
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.recipe import Around, Column, Figures, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.training import train

WORKERS, SERVERS = 12, 2
SEEDS = 20
"""The paper has five runs, which tell only large ratios of deviations apart."""
COLUMNS: Mapping[str, Column] = {
    "training_loss": Column("training loss"),
    "training_accuracy": Column("training accuracy"),
    "validation_loss": Column("validation loss"),
    "validation_accuracy": Column("validation accuracy"),
}
VALIDATION = ("validation_loss", "validation_accuracy")
SPREAD = {
    Verdict.CANNOT: "Twenty runs tell two deviations apart from a ratio of 1.6 on, and the paper's five from 3.1 on.",
    Verdict.NO_EFFECT: "Our twenty runs vary as much either way; the paper's five vary eight times as much.",
    Verdict.AGREES: "Random shards are other shards in each run; stratified ones hold each class evenly in all, aware ones "
    "each cluster.",
}
MEANS = {
    Verdict.CANNOT: "The difference is smaller than that of two seeds, as in the paper.",
    Verdict.AGREES: "With many clusters some are sparse, and every worker trains on their examples.",
}
"""Why: of deviations, and of means."""
Method = Mapping[str, Any]
"""A sharding strategy with its options."""
Spread = tuple[str, str, str]
"""A figure, the method whose runs differ more in it, and the one whose runs differ less."""


def methods(clusters: Sequence[int]) -> dict[str, Method]:
    """The rows of a table."""
    aware = {f"distribution-aware, {k}": {"name": "distribution_aware", "clusters": k} for k in clusters}
    return {"random": {"name": "random"}, "stratified": {"name": "stratified"}, **aware}


def config_of(task: str, model: str | None, data: str, method: Method, seed: int, epochs: int) -> Config:
    """The settings of one run: He et al.'s for one machine, divided as the paper says."""
    return load_config(
        overrides={
            "task": task,
            "model": model,
            "data": {"path": data, "strategy": dict(method), "validation": 0.0},
            "workers": WORKERS,
            "servers": SERVERS,
            "policy": {"name": "asp"},
            "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9, "weight_decay": 1e-4},
            "schedule": {"name": "multistep", "milestones": [epochs / 2, 3 * epochs / 4], "lr_scale": "inverse"},
            "epochs": epochs,
            "batch_size": 128,
            "batch": "global",
            "seed": seed,
        }
    )


def measured(around: Around, name: str, config: Config) -> Figures:
    """What a run of this method gave, how many neighbourhoods were sparse, and their mean size (examples)."""
    folder = around.folder / f"{name}-{config.seed}"
    problem = problem_of(config, folder)
    found = problem.measures(train(config, problem).model)
    return {
        "training_loss": found["train_loss"],
        "training_accuracy": found["train_accuracy"],
        "validation_loss": found["test_loss"],
        "validation_accuracy": found["test_accuracy"],
        **sparse_of(open_shards(folder).manifest),
    }


def sparse_of(manifest: Manifest) -> Figures:
    """How many neighbourhoods were sparse, and their mean size (examples); NaN where there was none."""
    sizes = [manifest.shards[0].clusters[str(number)] for number in manifest.sparse]
    return {"sparse": len(sizes), "size": fmean(sizes) if sizes else nan}


def run_of(every: Mapping[str, Method], task: str, model: str | None, data: str, epochs: int) -> Callable[..., Figures]:
    """The `run` of a recipe."""

    def run(around: Around, name: str, seed: int) -> Figures:
        return measured(around, name, config_of(task, model, data, every[name], seed, epochs))

    return run


def numbers(every: Sequence[str], rows: Sequence[Sequence[float]]) -> Numbers:
    """The paper's means, or its deviations, by row and column."""
    return {row: dict(zip(COLUMNS, each, strict=True)) for row, each in zip(every, rows, strict=True)}


def claims(deviations: Numbers, spreads: Sequence[Spread], most_accurate: str, least_loss: str) -> list[Claim]:
    """What the text says of every table. `deviations`: the paper's; `spreads`: which of them it compares; then the methods with
    the best validation accuracy and the lowest training loss."""
    return [
        *(
            MoreSpread(
                f"{COLUMNS[column].name} varies more between runs of {row} than of {other}",
                SPREAD,
                column,
                row,
                other,
                deviations[row][column] / deviations[other][column],
            )
            for column, row, other in spreads
        ),
        Above(
            f"{most_accurate} has a higher validation accuracy than random",
            MEANS,
            "validation_accuracy",
            most_accurate,
            "random",
        ),
        Above(f"{least_loss} has a lower training loss than random", MEANS, "training_loss", "random", least_loss),
    ]


def draw(runs: Runs) -> Figure:
    """The runs of each method, by figure."""
    panels = {
        column.name: {row: [float(value) for value in runs.of(row, name)] for row in runs.recipe.rows}
        for name, column in COLUMNS.items()
    }
    return spreads(panels)
