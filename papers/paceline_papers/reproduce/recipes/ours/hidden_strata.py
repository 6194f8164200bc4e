"""What the sharding strategies do where a rare kind of examples hides within a class ([Sharding] IV-G), as
docs/choose/sharding.md says. [Sharding]'s setting: nobody waits, a worker takes mini-batch B / n and rate a / n, and the rate
falls twice. A seed decides the shards, the first weights and the order of the pushes. The test examples are the rare kind."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from paceline.core.settings.config import Config
from paceline.data.dataset import Rows
from paceline.data.shards import open_shards
from paceline.tasks.task import load_config, load_task
from paceline_papers.reproduce import tasks
from paceline_papers.reproduce.claims import Above, Apart, Between, MoreSpread
from paceline_papers.reproduce.pictures import spreads
from paceline_papers.reproduce.recipe import Around, Column, Figures, Recipe, Runs
from paceline_papers.reproduce.rule import Verdict
from paceline_studies.simulator.problem import problem_of
from paceline_studies.simulator.training import train

TASKS = Path(tasks.__path__[0])
TASK, STRATA = TASKS / "hidden_strata.py", TASKS / "hidden_strata_groups.py"
WORKERS, EPOCHS, RATE = 12, 12, 1.5
STRATEGIES = ("random", "stratified", "distribution_aware")
MANY, FEW = 24, 8
"""Examples of the rare kind: more and fewer than workers."""


def row(strategy: str, rare: int) -> str:
    return f"{strategy}, {rare} rare"


ROWS = {row(strategy, rare): (strategy, rare) for rare, strategy in product((MANY, FEW), STRATEGIES)}


def config_of(strategy: str, rare: int, seed: int) -> Config:
    """The settings of one run."""
    schedule = {"name": "multistep", "milestones": [EPOCHS / 2, EPOCHS * 3 / 4], "lr_scale": "inverse"}
    own: dict[str, Any] = {
        "task": str(TASK),
        "data": {"path": str(rare), "strategy": {"name": strategy}},
        "workers": WORKERS,
        "servers": 1,
        "epochs": EPOCHS,
        "policy": {"name": "asp"},
        "batch": "global",
        "schedule": schedule,
        "optimizer": {"name": "sgd", "lr": RATE, "momentum": 0.0},
        "seed": seed,
    }
    return load_config(overrides=own)


def rarest(folder: Path, labels: Rows) -> list[int]:
    """How many examples of the rarest class each shard has; `labels` are those of all training examples, by id."""
    names, counts = np.unique(labels, return_counts=True)
    shards = open_shards(folder)
    held = [labels[shards.shard(number).ids] for number in range(len(shards))]
    return [int(np.count_nonzero(of_shard == names[counts.argmin()])) for of_shard in held]


def run(around: Around, name: str, seed: int) -> Figures:
    strategy, rare = ROWS[name]
    config, folder = config_of(strategy, rare, seed), around.folder / f"{strategy}-{rare}-{seed}"
    of = problem_of(config, folder)
    found = of.measures(train(config, of).model)
    labels = load_task(str(STRATA)).data(str(rare)).train.classes
    assert labels is not None
    counts = rarest(folder, labels)
    figures = {f"{part}_accuracy": found[f"{part}_accuracy"] for part in ("validation", "test")}
    return {"fewest": min(counts), "most": max(counts), **figures}


def draw(runs: Runs) -> Figure:
    shown = ("validation_accuracy", "test_accuracy")
    return spreads({RECIPE.columns[name].name: {row: runs.of(row, name) for row in ROWS} for name in shown})


RECIPE = Recipe(
    number="Hidden strata",
    shows="accuracy on a rare kind of examples by sharding strategy",
    small=f"Made-up examples, one class with a rare kind, {WORKERS} workers, {EPOCHS} epochs, ASP, in virtual time.",
    rows=list(ROWS),
    columns={
        "fewest": Column("rare in a shard, fewest", ".1f"),
        "most": Column("most", ".1f"),
        "validation_accuracy": Column("validation accuracy"),
        "test_accuracy": Column("accuracy on the rare kind"),
    },
    run=run,
    draw=draw,
    claims=[
        Between(
            f"{row('distribution_aware', MANY)}: every shard has its two",
            {Verdict.AGREES: "The rare kind has its own cluster, and a cluster is dealt in turn."},
            "fewest",
            row("distribution_aware", MANY),
            2,
            2,
        ),
        Between(
            f"{row('distribution_aware', FEW)}: every shard has all of them",
            {Verdict.AGREES: "A cluster of fewer examples than workers is given to all."},
            "fewest",
            row("distribution_aware", FEW),
            FEW,
            FEW,
        ),
        *(
            Above(
                f"{FEW} rare: distribution_aware learns the rare kind better than {strategy}",
                {Verdict.AGREES: "All twelve workers train on all of them, so they count twelve times."},
                "test_accuracy",
                row("distribution_aware", FEW),
                row(strategy, FEW),
            )
            for strategy in STRATEGIES[:2]
        ),
        *(
            Apart(
                f"{MANY} rare: {strategy} ends within a point of random in validation",
                {Verdict.AGREES: "Equal workers see every example once an epoch, in whichever shard it is."},
                "validation_accuracy",
                row(strategy, MANY),
                row("random", MANY),
                low=-0.01,
                high=0.01,
            )
            for strategy in STRATEGIES[1:]
        ),
        *(
            MoreSpread(
                f"{MANY} rare: runs with random shards vary more in validation than with {strategy}",
                {Verdict.CANNOT: "Five runs tell two deviations apart only from a ratio of 3.1 on."},
                "validation_accuracy",
                row("random", MANY),
                row(strategy, MANY),
                theirs,
            )
            for strategy, theirs in (("stratified", 6.0), ("distribution_aware", 2.0))
        ),
    ],
    minutes=1,
    side_by_side=True,
)
